use forebay::prelude::*;
fn main() {
    for kind in ["cpu", "io"] {
        for w in [1usize, 2, 4] {
            for buf in [Buffer::default(), Buffer { items: 2 * w, bytes: 1 << 30 }] {
                let n = if buf.items > 16 { 1_000_000u64 } else { 50_000 };
                let t = std::time::Instant::now();
                let p = Pipeline::from_with(
                    source::iter("numbers", 0..n),
                    Options { buffer: Some(buf), ..Default::default() },
                );
                let run = if kind == "cpu" {
                    p.then(cpu::map("a", |x: u64| Ok::<_, Never>(x + 1)).workers(w).buffer(buf))
                        .then(cpu::map("b", |x: u64| Ok::<_, Never>(x * 2)).workers(w).buffer(buf))
                        .then(cpu::map("c", |x: u64| Ok::<_, Never>(x - 3)).workers(w).buffer(buf))
                } else {
                    p.then(
                        io::map("a", async |x: u64| Ok::<_, Never>(x + 1)).workers(w).buffer(buf),
                    )
                    .then(io::map("b", async |x: u64| Ok::<_, Never>(x * 2)).workers(w).buffer(buf))
                    .then(
                        io::map("c", async |x: u64| Ok::<_, Never>(x.wrapping_sub(3)))
                            .workers(w)
                            .buffer(buf),
                    )
                }
                .run()
                .unwrap();
                let mut sum = 0u64;
                for x in run {
                    sum = sum.wrapping_add(x.unwrap());
                }
                println!(
                    "{kind} w={w} buffer={} {:.3} us/item sum {sum}",
                    buf.items,
                    t.elapsed().as_secs_f64() * 1e6 / n as f64
                );
            }
        }
    }
}

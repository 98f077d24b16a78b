//! scratch
use forebay::prelude::*;
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let t = std::time::Instant::now();
    let store = Store::open("sample://era5")?;
    println!("open {:?}", t.elapsed());
    let t = std::time::Instant::now();
    let spec = WindowsSpec {
        variables: vec!["t2m".into(), "u10".into(), "v10".into()],
        window: [("time", 1)].into(),
        ..Default::default()
    };
    let pool = Pool::default();
    let n: u64 = std::env::args().nth(1).map_or(1, |s| s.parse().unwrap());
    let run = Pipeline::from(zarr::windows(&store, &spec)?)
        .then(flow::repeat(n))
        .then(flow::shuffle(42))
        .then(flow::batch(4))
        .then(io::map("fetch", zarr::fetch).workers(8))
        .then(cpu::map("decode", zarr::decode(&pool)))
        .then(cpu::map("normalize", ops::normalize(ops::Stats::Auto)))
        .then(device::upload(&device::auto()))
        .run()?;
    let mut sum = 0.0;
    let h = run.handle();
    for b in run {
        let b = b?;
        sum += f64::from(b.get("t2m").unwrap().as_host::<f32>().unwrap()[1000]);
    }
    let s = h.stats();
    println!(
        "{:?} {sum} {} bytes {:.0} MB/s pool {:?} {:?}",
        t.elapsed(),
        s.bytes,
        s.bytes as f64 / 1e6 / s.elapsed.as_secs_f64(),
        pool,
        store.pool()
    );
    for s in &s.stages {
        println!(
            "{} {:?} {:?} on core {:?}",
            s.id,
            s.states.shares().map(|x| (x * 100.0) as u32),
            s.service,
            s.on_core
        );
    }
    Ok(())
}

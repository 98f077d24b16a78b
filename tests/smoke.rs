use forebay::prelude::*;
#[test]
fn chain() {
    let run = Pipeline::from(source::iter("numbers", 0..10_000u64))
        .then(cpu::map("inc", |x: u64| Ok::<_, Never>(x + 1)).workers(2))
        .then(io::map("dbl", async |x: u64| Ok::<_, Never>(x * 2)).workers(2))
        .then(cpu::filter("even", |x: &u64| Ok::<_, Never>(x % 3 == 0)).workers(4))
        .run()
        .unwrap();
    let v: Vec<u64> = run.map(|x| x.unwrap()).collect();
    let want: Vec<u64> = (0..10_000u64).map(|x| (x + 1) * 2).filter(|x| x % 3 == 0).collect();
    assert_eq!(v, want);
}

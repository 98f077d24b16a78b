//! A run can be started anywhere, and used as an iterator or as a stream.

use forebay::prelude::*;
use tokio::runtime::Builder;

use crate::support::{Broken, numbers, outcome};

fn pipeline(n: u64) -> Pipeline<u64> {
    numbers(n)
        .0
        .then(io::map("wait", async |x: u64| {
            tokio::task::yield_now().await;
            Ok::<_, Never>(x)
        }))
        .then(cpu::map("work", Ok::<u64, Never>))
}

async fn as_a_stream() -> Vec<u64> {
    let mut run = pipeline(200).run().expect("runs");
    let mut items = Vec::new();
    while let Some(item) = run.recv().await {
        items.push(item.expect("no fault"));
    }
    items
}

#[test]
fn inside_a_runtime_of_one_thread() {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    assert!(runtime.block_on(as_a_stream()).into_iter().eq(0..200));
}

#[test]
fn inside_a_runtime_of_many_threads() {
    let runtime = Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    assert!(runtime.block_on(as_a_stream()).into_iter().eq(0..200));
}

#[test]
fn as_an_iterator_inside_a_runtime() {
    // Blocking there is the caller's choice; it must not panic or hang.
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let items = runtime.block_on(async { outcome(pipeline(200).run().expect("runs")).0 });
    assert_eq!(items.len(), 200);
}

#[test]
fn dropped_inside_a_runtime() {
    for threads in [1, 2] {
        let runtime =
            Builder::new_multi_thread().worker_threads(threads).build().expect("a runtime");
        runtime.block_on(async {
            let mut run = pipeline(1_000_000).run().expect("runs");
            assert!(run.recv().await.is_some());
            drop(run);
            let stats = pipeline(10).run().expect("runs").close();
            assert!(stats.items == 0);
        });
    }
}

#[test]
fn several_side_by_side() {
    let threads: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(|| outcome(pipeline(500).run().expect("runs")).0.len()))
        .collect();
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), 500);
    }
}

#[test]
fn mixed_in_one_loop() {
    let mut runs: Vec<_> = (0..3).map(|_| pipeline(50).run().expect("runs")).collect();
    for expected in 0..50 {
        for run in &mut runs {
            assert_eq!(run.next().expect("more").expect("no fault"), expected);
        }
    }
    assert!(runs.iter_mut().all(|run| run.next().is_none()));
}

#[test]
fn a_stream_tells_the_fault_once_and_then_ends() {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let (source, _) = numbers(10);
        let run = source
            .then(io::map("fetch", async |x: u64| if x == 6 { Err(Broken(x)) } else { Ok(x) }))
            .run()
            .expect("runs");
        let all: Vec<_> = futures::StreamExt::collect(run).await;
        assert_eq!(all.len(), 7);
        assert!(all[..6].iter().all(Result::is_ok) && all[6].is_err());
    });
}

#[test]
fn a_plan_is_inert_and_a_run_can_be_handed_over() {
    let (source, pulled) = numbers(10);
    let plan = source.then(cpu::map("work", Ok::<u64, Never>));
    crate::support::pause(std::time::Duration::from_millis(20));
    assert_eq!(pulled.load(std::sync::atomic::Ordering::SeqCst), 0);
    let run = plan.run().expect("runs");
    let sum = std::thread::spawn(move || run.map(|x| x.expect("no fault")).sum::<u64>());
    assert_eq!(sum.join().expect("no panic"), 45);
}

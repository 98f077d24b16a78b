//! Typed worker state: made once for each worker, passed to each call, always given back.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use forebay::prelude::*;

use crate::support::{Broken, numbers, outcome, until};

type Reasons = Arc<Mutex<Vec<Finish>>>;

fn counted(
    kind: Kind,
    made: &Arc<AtomicUsize>,
    ended: &Reasons,
    fail_at: Option<u64>,
) -> Box<dyn FnOnce(Pipeline<u64>) -> Pipeline<u64>> {
    let (made, ended) = (Arc::clone(made), Arc::clone(ended));
    let start = move |worker: &Worker| {
        assert_eq!(worker.stage(), "stateful");
        assert!(worker.index() < worker.workers());
        made.fetch_add(1, SeqCst);
        Ok::<_, Never>(0_u64)
    };
    let finish = move |_: u64, reason| ended.lock().expect("not poisoned").push(reason);
    let call = move |state: &mut u64, call: &Call<'_>, x: u64| {
        *state += 1;
        assert_eq!(call.id().position(), x);
        if fail_at == Some(x) { Err(Broken(x)) } else { Ok(x) }
    };
    match kind {
        Kind::Cpu => {
            let stage = cpu::with(start).finish(finish).map("stateful", call);
            Box::new(|p| p.then(stage.workers(3)))
        }
        Kind::Device => {
            let stage = device::with(start).finish(finish).map("stateful", call);
            Box::new(|p| p.then(stage.workers(3)))
        }
        _ => {
            let stage = io::with(move |worker: Worker| std::future::ready(start(&worker)))
                .finish(move |state: Arc<u64>, reason| finish(*state, reason))
                .map("stateful", move |_, context: io::Context, x: u64| {
                    assert_eq!(context.id.position(), x);
                    std::future::ready(if fail_at == Some(x) { Err(Broken(x)) } else { Ok(x) })
                });
            Box::new(|p| p.then(stage.workers(3)))
        }
    }
}

#[test]
fn every_state_made_is_finished_with_the_reason() {
    for kind in crate::support::KINDS {
        for (fail_at, reason) in [(None, Finish::Finished), (Some(50), Finish::Failed)] {
            let (made, ended) = (Arc::default(), Reasons::default());
            let (source, _) = numbers(100);
            let pipeline = counted(kind, &made, &ended, fail_at)(source);
            let (_, fault) = outcome(pipeline.run().expect("runs"));
            assert_eq!(fault.is_some(), fail_at.is_some());
            let made = made.load(SeqCst);
            assert!((1..=3).contains(&made), "{kind}: {made} states");
            let ended = ended.lock().expect("not poisoned");
            assert_eq!(*ended, vec![reason; made], "{kind}");
        }
    }
}

#[test]
fn a_dropped_run_finishes_states_as_cancelled() {
    for kind in crate::support::KINDS {
        let (made, ended) = (Arc::default(), Reasons::default());
        let (source, _) = numbers(100_000);
        let mut run = counted(kind, &made, &ended, None)(source).run().expect("runs");
        assert!(run.next().is_some());
        let made: Arc<AtomicUsize> = made;
        run.close();
        until("all states are finished", || {
            ended.lock().expect("not poisoned").len() == made.load(SeqCst)
        });
        let ended = ended.lock().expect("not poisoned");
        assert!(ended.iter().all(|reason| *reason == Finish::Cancelled), "{kind}: {ended:?}");
    }
}

#[test]
fn a_start_that_fails_is_the_stages_fault() {
    let (source, _) = numbers(10);
    let stage = cpu::with(|_: &Worker| Err::<(), _>(Broken(1)))
        .map("no_start", |(), _, x: u64| Ok::<_, Never>(x));
    let (items, fault) = outcome(source.then(stage).run().expect("runs"));
    assert!(items.is_empty());
    let fault = fault.expect("a fault");
    assert_eq!(fault.stage(), "no_start");
    assert_eq!(fault.downcast_ref(), Some(&Broken(1)));
}

#[test]
fn a_panic_makes_the_state_anew() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let (source, _) = numbers(10);
    let stage = cpu::with(move |_: &Worker| {
        count.fetch_add(1, SeqCst);
        Ok::<_, Never>(())
    })
    .map("touchy", |(), _, x: u64| {
        assert!(x != 4, "broken state");
        Ok::<_, Never>(x)
    });
    let (items, _) =
        outcome(source.then(stage.workers(1).on_error(OnError::skip())).run().expect("runs"));
    assert_eq!(items.len(), 9);
    assert_eq!(made.load(SeqCst), 2);
}

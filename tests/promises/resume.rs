//! A run that goes on from a position yields what an unbroken run would have yielded from there on: the
//! same values, the same ids, the same fingerprint, wherever it was broken off, and however often.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use forebay::checkpoint::CheckpointError;
use forebay::entering::Entry;
use forebay::fault::FaultKind;
use forebay::item::ItemId;
use forebay::position::ResumeError;
use forebay::prelude::*;

use crate::support::{Gate, until};

/// Items of a source that are computed by position, and how many were.
fn numbers(len: u64) -> (Pipeline<u64>, Arc<AtomicU64>) {
    let made = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&made);
    let get = move |i| {
        count.fetch_add(1, SeqCst);
        i * 10
    };
    (Pipeline::from(source::index("numbers", Index::new(len, get))), made)
}

fn plain(len: u64) -> Pipeline<u64> {
    numbers(len).0
}

fn add(workers: usize) -> impl Stage<In = u64, Out = u64> {
    cpu::map("add", |x: u64| Ok::<_, Never>(x + 1)).workers(workers)
}

fn received<T: Send + 'static>(run: &mut Running<T>, most: usize) -> Vec<(ItemId, T)> {
    let mut received = Vec::new();
    while received.len() < most
        && let Some(item) = run.next()
    {
        received.push((run.last_id().expect("it was yielded"), item.expect("no fault")));
    }
    received
}

/// As another process has it.
fn sent(position: &Position) -> Position {
    let text = serde_json::to_string(position).expect("written");
    serde_json::from_str(&text).expect("read")
}

/// Breaks off a run of `plan` behind each of its items, goes on with other workers, and breaks off once
/// more; all as an unbroken run.
fn each_place<T>(plan: impl Fn(usize) -> Pipeline<T>)
where
    T: Send + PartialEq + Debug + 'static,
{
    let mut run = plan(1).run().expect("runs");
    let whole = received(&mut run, usize::MAX);
    let position = run.position();
    assert_eq!((position.items(), position.is_finished()), (whole.len() as u64, true));
    let fingerprint = position.fingerprint();
    assert!(whole.len() > 4, "there is little to break off");
    for k in 0..=whole.len() {
        let mut run = plan(2).run().expect("runs");
        assert_eq!(received(&mut run, k), whole[..k]);
        let first = sent(&run.position());
        drop(run);
        assert_eq!((first.items(), first.is_finished()), (k as u64, false));

        let mut run = plan(3).resume(&first).expect("the same plan").run().expect("runs");
        assert_eq!(run.position(), first);
        assert_eq!(received(&mut run, usize::MAX), whole[k..], "from {k}");
        assert_eq!(run.position(), position, "from {k}");
        let stats = run.close();
        let left = (whole.len() - k) as u64;
        assert_eq!((stats.before, stats.items), (k as u64, left));
        assert_eq!(stats.fingerprint, fingerprint.value());

        let mut run = plan(1).resume(&first).expect("the same plan").run().expect("runs");
        let more = received(&mut run, 2).len();
        let second = sent(&run.position());
        drop(run);
        let mut run = plan(2).resume(&second).expect("the same plan").run().expect("runs");
        assert_eq!(received(&mut run, usize::MAX), whole[k + more..], "from {k} and {more}");
        assert_eq!(run.position(), position);
    }
    let mut run = plan(1).resume(&position).expect("the same plan").run().expect("runs");
    assert!(run.next().is_none(), "nothing is left");
    let stats = run.close();
    assert_eq!((stats.before, stats.items, stats.read), (whole.len() as u64, 0, 0));
}

#[test]
fn maps_go_on_with_the_next_item() {
    let plan = |workers| plain(12).then(add(workers)).then(io::map("same", io_same).workers(2));
    assert_eq!(plan(1).entry(), Entry::Next);
    each_place(plan);
}

async fn io_same(x: u64) -> Result<u64, Never> {
    Ok(x)
}

#[test]
fn a_source_alone_goes_on() {
    assert_eq!(plain(9).entry(), Entry::Next);
    each_place(|_| plain(9));
}

#[test]
fn epochs_with_orders_of_their_own_go_on() {
    let plan = |workers| {
        let epochs = plain(7).then(flow::shuffle(3)).then(flow::batch(2)).then(flow::repeat(3));
        epochs.then(cpu::map("sum", |x: Vec<u64>| Ok::<_, Never>(x)).workers(workers))
    };
    assert_eq!(plan(1).entry(), Entry::Next);
    each_place(plan);
}

#[test]
fn a_rank_of_a_world_goes_on() {
    each_place(|workers| {
        plain(23)
            .then(flow::shuffle(5))
            .then(flow::shard(1, 3))
            .then(flow::skip(1))
            .then(add(workers))
    });
}

#[test]
fn filters_and_failures_that_are_skipped_go_on() {
    let plan = |workers| {
        let some = cpu::filter("some", |x: &u64| Ok::<_, Never>(!x.is_multiple_of(3)));
        let fails = cpu::map("fails", |x: u64| if x == 50 { Err("no") } else { Ok(x) });
        plain(14).then(some.workers(workers)).then(fails.on_error(OnError::skip()))
    };
    assert_eq!(plan(1).entry(), Entry::Next);
    each_place(plan);
}

#[test]
fn several_items_of_one_go_on_in_the_middle_of_them() {
    let plan = |workers| {
        let many = |x: u64| Ok::<_, Never>((0..x / 10).map(move |n| Ok::<_, Never>(x + n)));
        plain(6).then(cpu::flat_map("many", many).workers(workers)).then(add(2))
    };
    assert_eq!(plan(1).entry(), Entry::Last);
    each_place(plan);
}

#[test]
fn groups_of_a_stream_go_on() {
    let plan = |workers| plain(17).then(add(workers)).then(flow::batch(3));
    assert_eq!(plan(1).entry(), Entry::Last);
    each_place(plan);
    each_place(|workers| {
        let odd = |x: &u64| Ok::<_, Never>(x.is_multiple_of(20));
        let some = cpu::filter("some", odd).workers(workers);
        plain(29).then(some).then(flow::batch(2)).then(flow::unbatch())
    });
    each_place(|_| plain(17).then(add(2)).then(flow::batch(2)).then(flow::batch(2)));
}

/// They can't be entered, so that everything is made again; what comes is the same.
#[test]
fn what_cannot_be_entered_is_made_again() {
    let begins = |plan: Entry, stage: &str| match plan {
        Entry::Beginning { stage: found, why } => assert_eq!(found, stage, "{why}"),
        other => panic!("{other}"),
    };
    let mixed = |workers| plain(13).then(add(workers)).then(flow::shuffle(1).buffer(4));
    begins(mixed(1).entry(), "shuffle");
    each_place(mixed);
    let taken = |workers| plain(30).then(add(workers)).then(flow::skip(2)).then(flow::take(9));
    begins(taken(1).entry(), "skip");
    each_place(taken);
    let of_many = |workers| {
        let many = |x: u64| Ok::<_, Never>((0..x / 10).map(move |n| Ok::<_, Never>(x + n)));
        let many = cpu::flat_map("many", many).workers(workers);
        plain(6).then(many).then(flow::batch(2))
    };
    begins(of_many(1).entry(), "batch");
    each_place(of_many);
    let listed = |workers| Pipeline::from(source::iter("iter", 0..9_u64)).then(add(workers));
    begins(listed(1).entry(), "iter");
    each_place(listed);
    let zipped = |workers| flow::zip(plain(8).then(add(workers)), plain(9).then(flow::shuffle(2)));
    begins(zipped(1).entry(), "zip");
    each_place(zipped);
    each_place(|workers| flow::interleave([plain(4).then(add(workers)), plain(5)]));
    each_place(|workers| {
        let branches = flow::tee(plain(6).then(add(workers)), 2);
        flow::concat(branches)
    });
}

/// Counts, as time would prove nothing: what comes before is not even computed.
#[test]
fn going_on_computes_no_earlier_item() {
    let plan = || {
        let (numbers, made) = numbers(1_000_000_000);
        let calls = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&calls);
        let call = move |x: u64| {
            count.fetch_add(1, SeqCst);
            Ok::<_, Never>(x)
        };
        (numbers.then(cpu::map("call", call).workers(1).buffer(4)), made, calls)
    };
    // The positions of two runs differ in what they have delivered alone.
    let mut run = plan().0.run().expect("runs");
    received(&mut run, 1);
    let text = serde_json::to_string(&run.position()).expect("written");
    let far = text.replace(r#""position":0"#, r#""position":999999989"#);
    assert_ne!(text, far);
    let far: Position = serde_json::from_str(&far).expect("read");
    let (resumed, made, calls) = plan();
    let mut run = resumed.resume(&far).expect("the same plan").run().expect("runs");
    let values: Vec<_> = received(&mut run, usize::MAX).into_iter().map(|(_, x)| x / 10).collect();
    assert_eq!(values, (999_999_990..1_000_000_000).collect::<Vec<_>>());
    assert_eq!((made.load(SeqCst), calls.load(SeqCst)), (10, 10));
}

/// A group that is made once more is all that is.
#[test]
fn going_on_in_groups_makes_one_of_them_again() {
    let (whole, made) = numbers(1000);
    let plan = |numbers: Pipeline<u64>| numbers.then(add(1)).then(flow::batch(4));
    let mut run = plan(whole).run().expect("runs");
    received(&mut run, 200);
    let position = run.position();
    drop(run);
    assert!(made.load(SeqCst) >= 800);
    let (rest, made) = numbers(1000);
    let run = plan(rest).resume(&position).expect("the same plan").run().expect("runs");
    assert_eq!(run.count(), 50);
    assert_eq!(made.load(SeqCst), 204);
}

/// F41: what was under way when a run was asked to stop is neither lost nor doubled.
#[test]
fn a_run_that_was_stopped_goes_on_behind_what_it_delivered() {
    let plan = || plain(500).then(add(2)).then(io::map("same", io_same).buffer(2));
    let whole = received(&mut plan().run().expect("runs"), usize::MAX);
    let mut run = plan().run().expect("runs");
    let mut had = received(&mut run, 5);
    run.stop();
    had.extend(received(&mut run, usize::MAX));
    let position = run.position();
    assert_eq!((position.items(), position.is_finished()), (had.len() as u64, false));
    drop(run);
    let mut run = plan().resume(&position).expect("the same plan").run().expect("runs");
    had.extend(received(&mut run, usize::MAX));
    assert!(had == whole);
}

/// The last group of a run that is stopped is not full: the position stays before it, so that its
/// items come with those that were missing.
#[test]
fn a_group_that_is_cut_short_by_a_stop_comes_again_whole() {
    let gate = Gate::closed();
    let plan = |gate: Gate| {
        let wait = move |x: u64| {
            let gate = gate.clone();
            async move {
                if x >= 100 {
                    gate.pass().await;
                }
                Ok::<_, Never>(x)
            }
        };
        // One item a call: what is finished is handed on before the next call waits.
        let wait = io::map("wait", wait).workers(1).retry(Retry::times(1));
        plain(30).then(wait).then(flow::batch(4))
    };
    let open = Gate::closed();
    open.open();
    let whole = received(&mut plan(open.clone()).run().expect("runs"), usize::MAX);
    let mut run = plan(gate.clone()).run().expect("runs");
    let first = received(&mut run, 2);
    until("the third group waits", || gate.came() == 1);
    // The source is stopped, so that its buffer is the last that comes.
    run.stop();
    gate.open();
    let rest = received(&mut run, usize::MAX);
    let position = run.position();
    drop(run);
    assert!(!rest.is_empty());
    assert_eq!((position.items(), first.len()), (2, 2));
    let mut run = plan(open).resume(&position).expect("the same plan").run().expect("runs");
    assert_eq!(received(&mut run, usize::MAX), whole[2..]);
}

#[test]
fn a_run_that_failed_goes_on_with_the_item_that_failed() {
    let plan = |broken: bool| {
        let decode = move |x: u64| if broken && x == 70 { Err("broken") } else { Ok(x) };
        plain(12).then(cpu::map("decode", decode).workers(3))
    };
    let mut run = plan(true).run().expect("runs");
    let outcomes: Vec<_> = run.by_ref().collect();
    assert!(outcomes[7].is_err() && outcomes.len() == 8);
    let position = run.position();
    assert_eq!((position.items(), position.is_finished()), (7, false));
    let rest = plan(false).resume(&position).expect("the same plan").run().expect("runs");
    let rest: Vec<_> = rest.collect::<Result<_, _>>().expect("no fault");
    assert_eq!(rest, [70, 80, 90, 100, 110]);
}

/// A program that takes items ahead keeps the position of the one that it has finished.
#[test]
fn a_position_is_that_of_its_item_whatever_is_taken_after_it() {
    let mut run = plain(10).then(add(2)).run().expect("runs");
    let ahead: Vec<_> = (0..6).map(|_| (run.next(), run.position())).collect();
    drop(run);
    let (_, third) = &ahead[2];
    let rest = plain(10).then(add(2)).resume(third).expect("the same plan").run().expect("runs");
    let rest: Vec<_> = rest.collect::<Result<_, _>>().expect("no fault");
    assert_eq!(rest, [31, 41, 51, 61, 71, 81, 91]);
}

fn refusal<T: Send + 'static>(position: &Position, plan: Pipeline<T>) -> String {
    plan.resume(position).map(drop).expect_err("another pipeline").to_string()
}

#[test]
fn a_position_of_another_order_is_refused_with_both() {
    let plan = |len, seed, rank: (u64, u64), size| {
        let shard = flow::shard(rank.0, rank.1);
        plain(len).then(flow::shuffle(seed)).then(shard).then(flow::batch(size))
    };
    let mut run = plan(100, 1, (0, 4), 5).run().expect("runs");
    received(&mut run, 2);
    let position = run.position();
    assert!(plan(100, 1, (0, 4), 5).resume(&position).is_ok());
    for (other, both) in [
        (plan(99, 1, (0, 4), 5), "`numbers` was `100 items`, and is `99 items`"),
        (plan(100, 2, (0, 4), 5), "`shuffle` was `seed 1`, and is `seed 2`"),
        (plan(100, 1, (1, 4), 5), "`rank 0 of 4, uneven drop`, and is `rank 1 of 4, uneven drop`"),
        (plan(100, 1, (0, 2), 5), "another number of them starts anew"),
        (plan(100, 1, (0, 4), 6), "`batch` was `size 5`, and is `size 6`"),
    ] {
        let refused = refusal(&position, other);
        assert!(refused.contains(both), "{refused}");
    }
    let fewer = plain(100).then(flow::shuffle(1));
    let refused = refusal(&position, fewer);
    assert!(refused.contains("`numbers, shuffle, shard, batch`"), "{refused}");
    assert!(refused.contains("are `numbers, shuffle`:"), "{refused}");
}

#[test]
fn what_depends_on_timing_is_refused_with_what_to_change() {
    let (run, fix) = (|| plain(9).then(add(1)), "leave out");
    let position = run().run().expect("runs").position();
    let hasty = cpu::map("add", |x: u64| Ok::<_, Never>(x)).unordered();
    assert!(refusal(&position, plain(9).then(hasty)).contains("leave out `ordered: false`"));
    let aged = run().then(flow::batch(2).within(Duration::from_secs(1)));
    assert!(refusal(&position, aged).contains(fix));
    let merged = flow::merge([run(), run()]);
    assert!(matches!(merged.entry(), Entry::Never { stage, .. } if stage == "merge"));
    assert!(refusal(&position, flow::merge([run(), run()])).contains("flow::interleave"));
}

#[test]
fn a_stage_behind_the_place_of_a_run_is_refused() {
    let position = plain(9).run().expect("runs").position();
    let late = plain(9).resume(&position).expect("the same plan").then(add(1));
    assert!(matches!(late.run().map(drop), Err(PlanError::Resumed(stage)) if stage == "add"));
    let late = plain(9).resume(&position).expect("the same plan");
    let joined = flow::zip(late, plain(9));
    assert!(matches!(joined.run().map(drop), Err(PlanError::Resumed(_))));
}

/// A run that makes everything again proves that it is the same.
#[test]
fn what_has_changed_is_a_fault_and_no_other_sequence() {
    let plan = |least: u64| {
        let some = cpu::filter("some", move |x: &u64| Ok::<_, Never>(*x >= least));
        plain(20).then(some).then(flow::take(9))
    };
    let mut run = plan(0).run().expect("runs");
    received(&mut run, 5);
    let position = run.position();
    let mut run = plan(30).resume(&position).expect("the same names").run().expect("runs");
    let fault = run.next().expect("one item").expect_err("another sequence");
    assert_eq!((fault.stage(), fault.kind()), ("resume", FaultKind::Error));
    assert!(fault.to_string().contains("does not come again (its fingerprint is"), "{fault}");
    assert!(run.next().is_none());
    let mut run = plan(190).resume(&position).expect("the same names").run().expect("runs");
    let fault = run.next().expect("one item").expect_err("another sequence");
    assert!(fault.to_string().contains("4 of its items are missing"), "{fault}");
}

#[test]
fn a_checkpoint_is_whole_or_an_error_that_says_why_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deep/down/run.ckpt");
    let checkpoint = Checkpoint::new(&path).every(Every::Items(3));
    assert!(checkpoint.load().expect("none").is_none());
    let mut run = plain(10).then(flow::shuffle(4)).run().expect("runs");
    let mut keeper = checkpoint.keep(&run.position()).expect("written");
    let mut written = Vec::new();
    while let Some(item) = run.next() {
        item.expect("no fault");
        if keeper.reached(&run.position()).expect("written") {
            written.push(checkpoint.load().expect("whole").expect("there").items());
        }
    }
    assert_eq!(written, [3, 6, 9]);
    keeper.end(&run.position()).expect("written");
    assert_eq!(checkpoint.load().expect("whole").as_ref(), Some(&run.position()));
    assert_eq!(path.parent().expect("a folder").read_dir().expect("read").count(), 1);

    let good = std::fs::read(&path).expect("read");
    let found = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("written");
        checkpoint.load().expect_err("not whole")
    };
    for cut in 0..good.len() - 1 {
        match found(&good[..cut]) {
            CheckpointError::Foreign { .. } if cut == 0 => {}
            CheckpointError::Damaged { .. } if cut > 0 => {}
            error => panic!("{cut} bytes: {error}"),
        }
    }
    let text = String::from_utf8(good).expect("UTF-8");
    let damaged = found(text.replace("\"items\":10", "\"items\":11").as_bytes());
    assert!(damaged.to_string().contains("not what was written"), "{damaged}");
    let newer = found(text.replace("checkpoint\":1", "checkpoint\":2").as_bytes());
    assert!(matches!(newer, CheckpointError::Version { version: 2, .. }), "{newer}");
    for other in [&b"version: 1\nstages: []\n"[..], b"{}", b"\xff\xfe\x00"] {
        let foreign = found(other);
        assert!(matches!(foreign, CheckpointError::Foreign { .. }), "{foreign}");
    }
    std::fs::remove_file(&path).expect("removed");
    std::fs::create_dir(&path).expect("made");
    assert!(matches!(checkpoint.load(), Err(CheckpointError::Io { .. })));
    assert!(checkpoint.save(&run.position()).is_err());
}

/// A user's own stage says nothing: all is made again, and right.
#[test]
fn a_stage_of_ones_own_is_right_at_first_and_quick_once_it_says_so() {
    struct Double {
        says: bool,
    }
    impl Stage for Double {
        type In = u64;
        type Out = u64;
        fn name(&self) -> &str {
            "double"
        }
        async fn run(self, inlet: &mut Inlet<u64>, outlet: &mut Outlet<u64>) -> Result<(), Stop> {
            while let Some(item) = inlet.recv().await? {
                outlet.send(item).await?;
                outlet.send(item + 1).await?;
            }
            Ok(())
        }
        fn entering(&self) -> Entering {
            if self.says { Entering::Many } else { Entering::Beginning("says nothing") }
        }
    }
    let read = |says| {
        let (whole, _) = numbers(20);
        let mut run = whole.then(Double { says }).run().expect("runs");
        received(&mut run, 31);
        let position = run.position();
        let (rest, made) = numbers(20);
        let run = rest.then(Double { says }).resume(&position).expect("the same").run();
        assert_eq!(run.expect("runs").count(), 9);
        made.load(SeqCst)
    };
    assert_eq!((read(false), read(true)), (20, 5));
    each_place(|_| plain(5).then(Double { says: true }));
    let error = ResumeError::Never { stage: "s".into(), why: "w".into() };
    assert!(error.to_string().contains("because `s` w"));
}

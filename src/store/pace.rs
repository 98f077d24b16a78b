//! How many requests a store is asked at once: as many as it bears. When it says that it is asked
//! too much (429 or 503) half as many, and one more for each round of answers that go well, as TCP
//! does. When it says how long to leave it alone (`Retry-After`), all requests wait that long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use hdrhistogram::Histogram;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::error::redacted;
use super::retries::{Retries, may_send, went_wrong};

/// No store is left alone for longer than this, whatever it asks for.
const REST_MAX: Duration = Duration::from_secs(300);

/// So many answers tell how long they take.
const LEARNED: u64 = 40;

/// The pace at which one store is asked.
#[derive(Debug)]
pub(super) struct Pace {
    state: Mutex<State>,
    throttled: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// Requests at once.
    limit: usize,
    most: usize,
    under_way: usize,
    /// Those who wait for a permit, by their turn and by when they came.
    waiting: BTreeMap<(u64, u64), oneshot::Sender<Permit>>,
    came: u64,
    /// Answers that went well since the limit last changed.
    well: usize,
    /// How often the limit was cut. Requests that were under way then don't cut it again.
    cuts: u64,
    /// Nothing is asked before.
    rest: Option<Instant>,
    /// How long answers took, in microseconds.
    took: Histogram<u32>,
    /// Requests that were answered, and those that were asked a second time meanwhile.
    answered: u64,
    hedged: u64,
}

/// Leave to ask once.
#[derive(Debug)]
pub(super) struct Permit(Option<Arc<Pace>>);

impl Pace {
    pub(super) fn new(most: usize) -> Arc<Self> {
        let state = State {
            limit: most,
            most,
            under_way: 0,
            waiting: BTreeMap::new(),
            came: 0,
            well: 0,
            cuts: 0,
            rest: None,
            took: Histogram::new_with_bounds(1, 600_000_000, 2).expect("the bounds are in order"),
            answered: 0,
            hedged: 0,
        };
        Arc::new(Pace { state: Mutex::new(state), throttled: AtomicU64::new(0) })
    }

    /// Waits until one more request may be under way. Those whose `turn` is earlier go first, so
    /// that what is wanted first is complete first.
    pub(super) async fn permit(self: &Arc<Self>, turn: u64) -> Permit {
        let waiting = {
            let mut state = self.state.lock();
            if state.under_way < state.limit && state.waiting.is_empty() {
                state.under_way += 1;
                return Permit(Some(Arc::clone(self)));
            }
            let (sender, receiver) = oneshot::channel();
            state.came += 1;
            let place = (turn, state.came);
            state.waiting.insert(place, sender);
            self.grant(&mut state);
            receiver
        };
        waiting.await.expect("those who wait are only taken out to be told")
    }

    /// Gives out what permits there are.
    fn grant(self: &Arc<Self>, state: &mut State) {
        while state.under_way < state.limit {
            let Some((_, waiting)) = state.waiting.pop_first() else { return };
            state.under_way += 1;
            if let Err(mut permit) = waiting.send(Permit(Some(Arc::clone(self)))) {
                // The one who waited is gone.
                permit.0 = None;
                state.under_way -= 1;
            }
        }
    }

    /// How often the store said that it is asked too much.
    pub(super) fn throttled(&self) -> u64 {
        self.throttled.load(Relaxed)
    }

    /// Requests at once, now.
    pub(super) fn limit(&self) -> usize {
        self.state.lock().limit
    }

    /// How many requests were asked a second time because the answer took long.
    pub(super) fn hedged(&self) -> u64 {
        self.state.lock().hedged
    }

    /// After how long an answer takes longer than 95 in 100 do, 10 ms at least: asking again would
    /// take as long. `None` while that is not known.
    pub(super) fn long(&self) -> Option<Duration> {
        let state = self.state.lock();
        let known = state.answered >= LEARNED;
        known.then(|| Duration::from_micros(state.took.value_at_quantile(0.95).max(10_000)))
    }

    /// Whether one more request may be asked a second time: one in twenty may, unless the store says
    /// that it is asked too much.
    pub(super) fn may_hedge(&self) -> bool {
        let mut state = self.state.lock();
        let may = state.limit == state.most && (state.hedged + 1) * 20 <= state.answered;
        state.hedged += u64::from(may);
        may
    }

    fn cuts(&self) -> u64 {
        self.state.lock().cuts
    }

    /// An answer went well, and took so long.
    pub(super) fn went_well(self: &Arc<Self>, took: Duration) {
        let mut state = self.state.lock();
        state.took.saturating_record(took.as_micros().try_into().unwrap_or(u64::MAX));
        state.answered += 1;
        state.well += 1;
        if state.limit < state.most && state.well >= state.limit {
            state.limit += 1;
            state.well = 0;
            self.grant(&mut state);
        }
    }

    /// The store is asked too much; `cuts` is how often the limit had been cut when the request
    /// began.
    fn too_much(&self, cuts: u64, rest: Option<Duration>) {
        self.throttled.fetch_add(1, Relaxed);
        crate::trace::throttled();
        let mut state = self.state.lock();
        if let Some(rest) = rest {
            let until = Instant::now() + rest.min(REST_MAX);
            state.rest = Some(state.rest.map_or(until, |known| known.max(until)));
        }
        if cuts == state.cuts {
            state.limit -= state.limit / 2;
            state.well = 0;
            state.cuts += 1;
        }
    }

    /// Waits as long as the store asked to be left alone.
    async fn rested(&self) {
        loop {
            let rest = self.state.lock().rest;
            match rest {
                Some(until) if until > Instant::now() => tokio::time::sleep_until(until).await,
                _ => return,
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(pace) = self.0.take() {
            let mut state = pace.state.lock();
            state.under_way -= 1;
            pace.grant(&mut state);
        }
    }
}

/// Connects clients that hear what the store says of its load.
#[derive(Clone, Debug)]
pub(super) struct Paced(pub(super) Arc<Pace>, pub(super) Arc<Retries>);

impl HttpConnector for Paced {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let (pace, retries) = (Arc::clone(&self.0), Arc::clone(&self.1));
        Ok(HttpClient::new(Listening { client, pace, retries }))
    }
}

#[derive(Debug)]
struct Listening {
    client: HttpClient,
    pace: Arc<Pace>,
    retries: Arc<Retries>,
}

#[async_trait]
impl HttpService for Listening {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let to = || format!("{} {}", request.method(), request.uri());
        may_send(&self.retries, to).map_err(|why| HttpError::new(HttpErrorKind::Unknown, why))?;
        self.pace.rested().await;
        let cuts = self.pace.cuts();
        let response = self.client.execute(request).await.inspect_err(|error| {
            went_wrong(redacted(&error.to_string()), false);
        })?;
        let (status, throttled) =
            (response.status(), matches!(response.status().as_u16(), 429 | 503));
        if !status.is_success() {
            went_wrong(format_args!("the store answered {status}"), throttled);
        }
        if throttled {
            let rest = response.headers().get("retry-after").and_then(|value| {
                let value = value.to_str().ok()?.trim();
                rest(value, SystemTime::now())
            });
            self.pace.too_much(cuts, rest);
        }
        Ok(response)
    }
}

/// What `Retry-After` says: seconds, or a date.
fn rest(value: &str, now: SystemTime) -> Option<Duration> {
    match value.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let until = httpdate::parse_http_date(value).ok()?;
            Some(until.duration_since(now).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(pace: &Pace) -> usize {
        let state = pace.state.lock();
        state.limit.saturating_sub(state.under_way)
    }

    #[tokio::test]
    async fn a_store_that_is_asked_too_much_is_asked_less() {
        let pace = Pace::new(8);
        let mut out = Vec::new();
        for _ in 0..6 {
            out.push(pace.permit(0).await);
        }
        // Both were under way at once: they say the same.
        pace.too_much(0, None);
        pace.too_much(0, None);
        assert_eq!((pace.limit(), pace.throttled(), free(&pace)), (4, 2, 0));
        out.truncate(4);
        assert_eq!(free(&pace), 0);
        out.truncate(2);
        assert_eq!(free(&pace), 2);
        for _ in 0..10 {
            pace.too_much(pace.cuts(), None);
        }
        assert_eq!(pace.limit(), 1, "one is always allowed");
        drop(out);
        assert_eq!(free(&pace), 1);
    }

    #[tokio::test]
    async fn it_is_asked_more_again_when_that_goes_well() {
        let pace = Pace::new(4);
        pace.too_much(0, None);
        assert_eq!(pace.limit(), 2);
        pace.went_well(Duration::ZERO);
        assert_eq!(pace.limit(), 2);
        pace.went_well(Duration::ZERO);
        assert_eq!(pace.limit(), 3);
        (0..100).for_each(|_| pace.went_well(Duration::ZERO));
        assert_eq!((pace.limit(), free(&pace)), (4, 4));
    }

    /// Whoever's turn is earliest is next, and those who have gone away keep nobody waiting.
    #[tokio::test]
    async fn earlier_turns_go_first() {
        let pace = Pace::new(1);
        let first = pace.permit(0).await;
        let mut waiting: Vec<_> =
            [7, 3, 5, 1].into_iter().map(|turn| (turn, Box::pin(pace.permit(turn)))).collect();
        for (_, permit) in &mut waiting {
            assert!(futures::poll!(permit.as_mut()).is_pending());
        }
        waiting.retain(|(turn, _)| *turn != 1);
        drop(first);
        let mut order = Vec::new();
        while !waiting.is_empty() {
            for at in 0..waiting.len() {
                if let std::task::Poll::Ready(permit) = futures::poll!(waiting[at].1.as_mut()) {
                    order.push(waiting.remove(at).0);
                    drop(permit);
                    break;
                }
            }
        }
        assert_eq!(order, [3, 5, 7]);
        assert_eq!(free(&pace), 1);
        // One that is told, but goes away before it hears it.
        let out = pace.permit(0).await;
        let mut told = Box::pin(pace.permit(0));
        assert!(futures::poll!(told.as_mut()).is_pending());
        drop(out);
        drop(told);
        assert_eq!(free(&pace), 1);
    }

    #[tokio::test]
    async fn it_is_left_alone_as_long_as_it_says() {
        let pace = Pace::new(4);
        pace.rested().await;
        let begin = Instant::now();
        pace.too_much(0, Some(Duration::from_millis(40)));
        pace.too_much(0, Some(Duration::from_millis(20)));
        pace.rested().await;
        assert!(begin.elapsed() >= Duration::from_millis(40));
        pace.too_much(1, Some(Duration::MAX));
        let rest = pace.state.lock().rest.expect("a rest");
        assert!(rest <= Instant::now() + REST_MAX);
    }

    #[test]
    fn few_are_asked_twice_and_none_of_a_store_that_is_asked_too_much() {
        let pace = Pace::new(4);
        assert_eq!(pace.long(), None);
        for i in 0..200 {
            let slow = i % 10 == 9;
            pace.went_well(Duration::from_millis(if slow { 400 } else { 20 }));
        }
        let long = pace.long().expect("known").as_millis();
        assert!((390..=410).contains(&long), "{long} ms");
        assert_eq!((0..100).filter(|_| pace.may_hedge()).count(), 10);
        pace.too_much(0, None);
        (0..100).for_each(|_| pace.went_well(Duration::ZERO));
        pace.state.lock().limit = 2;
        assert!(!pace.may_hedge());
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Tue, 01 Dec 2026 00:00:00 GMT").expect("a date");
        assert_eq!(rest("120", now), Some(Duration::from_secs(120)));
        assert_eq!(rest("Tue, 01 Dec 2026 00:00:30 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(rest("Mon, 30 Nov 2026 00:00:30 GMT", now), Some(Duration::ZERO));
        assert_eq!(rest("soon", now), None);
    }
}

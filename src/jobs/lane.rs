//! The slots of one upstream, and the turns of those who wait for one: callers take turns, whoever asks more
//! often, and each caller's own calls stay in order.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::limits::{LANE_WAITING_MAX, LANE_WAITING_PER_CALLER_MAX};

/// The slots of one upstream. A call holds one while it is under way.
pub struct Lane {
    width: usize,
    per_caller: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    waiting: usize,
    /// Callers that wait, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    queues: HashMap<Arc<str>, BTreeMap<u64, oneshot::Sender<Slot>>>,
    /// Slots that each caller holds; kept only where one caller may not hold all of them.
    held: HashMap<Arc<str>, usize>,
    next_ticket: u64,
}

/// No room to wait in. Nothing was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// So many calls of all callers wait already.
    #[error("{LANE_WAITING_MAX} calls wait for the upstream already")]
    Lane,
    /// So many calls of this caller wait already.
    #[error("{LANE_WAITING_PER_CALLER_MAX} of your calls wait for the upstream already")]
    Caller,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (free, waiting) = (self.state().free, self.state().waiting);
        let mut out = f.debug_struct("Lane");
        out.field("width", &self.width).field("free", &free).field("waiting", &waiting);
        out.finish_non_exhaustive()
    }
}

impl Lane {
    /// A lane of `width` slots, of which one caller holds at most `per_caller`.
    pub fn new(width: usize, per_caller: usize) -> Arc<Self> {
        let state = State {
            free: width,
            waiting: 0,
            turns: VecDeque::new(),
            queues: HashMap::new(),
            held: HashMap::new(),
            next_ticket: 0,
        };
        Arc::new(Self { width, per_caller: per_caller.min(width), state: Mutex::new(state) })
    }

    /// Its width and what one caller may hold of it.
    pub fn shape(&self) -> (usize, usize) {
        (self.width, self.per_caller)
    }

    /// Calls that wait for a slot now.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// A slot that is free for this caller now.
    pub fn try_enter(self: &Arc<Self>, caller: &Arc<str>) -> Option<Slot> {
        let mut state = self.state();
        // Somebody who waits may be bound by its own ceiling only, so that alone is no reason to queue behind.
        let overtakes = state.waiting > 0 && state.turns.iter().any(|c| self.may_hold(&state, c));
        if state.free == 0 || overtakes || !self.may_hold(&state, caller) {
            return None;
        }
        Some(self.take(&mut state, caller))
    }

    /// A place in the queue.
    pub fn wait(self: &Arc<Self>, caller: &Arc<str>) -> Result<Turn, Full> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if state.waiting >= LANE_WAITING_MAX {
            return Err(Full::Lane);
        }
        let of_caller = state.queues.get(caller).map_or(0, BTreeMap::len);
        if of_caller >= LANE_WAITING_PER_CALLER_MAX {
            return Err(Full::Caller);
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting += 1;
        if of_caller == 0 {
            state.turns.push_back(Arc::clone(caller));
        }
        state.queues.entry(Arc::clone(caller)).or_default().insert(ticket, sender);
        drop(state);
        // A slot may have come free between the two looks.
        self.serve();
        Ok(Turn { lane: Arc::clone(self), caller: Arc::clone(caller), ticket, receiver })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_hold(&self, state: &State, caller: &str) -> bool {
        self.per_caller == self.width || state.held.get(caller).is_none_or(|n| *n < self.per_caller)
    }

    fn take(self: &Arc<Self>, state: &mut State, caller: &Arc<str>) -> Slot {
        state.free = state.free.saturating_sub(1);
        if self.per_caller < self.width {
            *state.held.entry(Arc::clone(caller)).or_default() += 1;
        }
        Slot(Some((Arc::clone(self), Arc::clone(caller))))
    }

    fn give_back(state: &mut State, caller: &str) {
        state.free += 1;
        if let Some(held) = state.held.get_mut(caller) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                state.held.remove(caller);
            }
        }
    }

    /// Hands free slots to those whose turn it is.
    fn serve(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            let Some((sender, slot)) = self.next(&mut state) else { return };
            drop(state);
            if let Err(mut slot) = sender.send(slot)
                && let Some((lane, caller)) = slot.0.take()
            {
                // Whoever waited went away just now; the slot is free again, and the loop goes on.
                Self::give_back(&mut lane.state(), &caller);
            }
        }
    }

    /// The next in turn with a slot for it.
    fn next(self: &Arc<Self>, state: &mut State) -> Option<(oneshot::Sender<Slot>, Slot)> {
        if state.free == 0 {
            return None;
        }
        for _ in 0..state.turns.len() {
            let caller = state.turns.pop_front()?;
            if !self.may_hold(state, &caller) {
                state.turns.push_back(caller);
                continue;
            }
            let Some(queue) = state.queues.get_mut(&caller) else { continue };
            let first = queue.pop_first();
            let is_more = !queue.is_empty();
            if is_more {
                state.turns.push_back(Arc::clone(&caller));
            } else {
                state.queues.remove(&caller);
            }
            if let Some((_, sender)) = first {
                state.waiting = state.waiting.saturating_sub(1);
                return Some((sender, self.take(state, &caller)));
            }
        }
        None
    }

    fn leave(&self, caller: &Arc<str>, ticket: u64) {
        let mut state = self.state();
        let Some(queue) = state.queues.get_mut(caller) else { return };
        let was_there = queue.remove(&ticket).is_some();
        if queue.is_empty() {
            state.queues.remove(caller);
            state.turns.retain(|c| c != caller);
        }
        if was_there {
            state.waiting = state.waiting.saturating_sub(1);
        }
    }
}

/// A slot of a lane, given back when it is dropped.
pub struct Slot(Option<(Arc<Lane>, Arc<str>)>);

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some((lane, caller)) = self.0.take() {
            Lane::give_back(&mut lane.state(), &caller);
            lane.serve();
        }
    }
}

/// A place in the queue of a lane: a future of its slot. Dropped, the place is given up.
#[derive(Debug)]
pub struct Turn {
    lane: Arc<Lane>,
    caller: Arc<str>,
    ticket: u64,
    receiver: oneshot::Receiver<Slot>,
}

impl Future for Turn {
    type Output = Option<Slot>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(cx).map(Result::ok)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.receiver.close();
        self.lane.leave(&self.caller, self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use proptest::strategy::Strategy as _;

    use super::*;

    fn name(text: &str) -> Arc<str> {
        Arc::from(text)
    }

    #[test]
    fn callers_take_turns_however_many_calls_each_has() {
        let lane = Lane::new(1, 1);
        let (greedy, modest) = (name("greedy"), name("modest"));
        let held = lane.try_enter(&greedy).unwrap();
        let mut first: Vec<Turn> = (0..3).map(|_| lane.wait(&greedy).unwrap()).collect();
        let mut second = lane.wait(&modest).unwrap();
        assert!(lane.try_enter(&modest).is_none());
        drop(held);
        let one = (&mut first[0]).now_or_never().flatten().expect("the first in line");
        assert!((&mut second).now_or_never().is_none());
        drop(one);
        let two = (&mut second).now_or_never().flatten().expect("the other caller's turn");
        assert!((&mut first[1]).now_or_never().is_none());
        drop(two);
        assert!((&mut first[1]).now_or_never().flatten().is_some());
        assert!((&mut first[2]).now_or_never().flatten().is_some(), "given back by the one before");
        drop(first);
        assert!(lane.try_enter(&modest).is_some());
        assert_eq!(lane.waiting(), 0);
    }

    #[test]
    fn a_place_that_is_given_up_takes_no_slot_and_no_room() {
        let lane = Lane::new(1, 1);
        let who = name("a");
        let held = lane.try_enter(&who).unwrap();
        let gone = lane.wait(&who).unwrap();
        let mut stays = lane.wait(&who).unwrap();
        drop(gone);
        assert_eq!(lane.waiting(), 1);
        drop(held);
        // Dropped with its slot already sent to it.
        let sent = (&mut stays).now_or_never().flatten().unwrap();
        let unread = lane.wait(&who).unwrap();
        drop(sent);
        drop(unread);
        assert!(lane.try_enter(&who).is_some());
    }

    #[test]
    fn one_caller_holds_no_more_than_its_part() {
        let lane = Lane::new(3, 2);
        let (a, b) = (name("a"), name("b"));
        let mut held: Vec<Slot> = (0..2).map(|_| lane.try_enter(&a).unwrap()).collect();
        assert!(lane.try_enter(&a).is_none());
        let mut waits = lane.wait(&a).unwrap();
        assert!((&mut waits).now_or_never().is_none(), "a slot is free, but not for this caller");
        let other = lane.try_enter(&b).expect("nobody who could take it is overtaken");
        drop(other);
        assert!((&mut waits).now_or_never().is_none());
        held.pop();
        assert!((&mut waits).now_or_never().flatten().is_some());
    }

    #[test]
    fn the_queue_of_a_caller_is_bounded() {
        let lane = Lane::new(1, 1);
        let who = name("a");
        let _held = lane.try_enter(&who).unwrap();
        let _waiting: Vec<Turn> =
            (0..LANE_WAITING_PER_CALLER_MAX).map(|_| lane.wait(&who).unwrap()).collect();
        assert_eq!(lane.wait(&who).unwrap_err(), Full::Caller);
        assert!(lane.wait(&name("b")).is_ok());
    }

    #[test]
    fn a_long_queue_of_one_caller_puts_another_one_off_by_one_turn() {
        let lane = Lane::new(2, 2);
        let (greedy, modest) = (name("greedy"), name("modest"));
        let mut held: VecDeque<Slot> = (0..2).map(|_| lane.try_enter(&greedy).unwrap()).collect();
        let mut waits: VecDeque<Turn> = (0..500).map(|_| lane.wait(&greedy).unwrap()).collect();
        let mut wanted: Vec<Turn> = (0..5).map(|_| lane.wait(&modest).unwrap()).collect();
        let mut order = String::new();
        while order.len() < 10 {
            held.pop_front();
            if let Some(slot) = (&mut waits[0]).now_or_never().flatten() {
                waits.pop_front();
                held.push_back(slot);
                order.push('g');
            } else {
                held.push_back((&mut wanted[0]).now_or_never().flatten().expect("it is one of the two"));
                drop(wanted.remove(0));
                order.push('m');
            }
        }
        assert_eq!(order, "gmgmgmgmgm");
        assert_eq!(lane.waiting(), 495);
    }

    /// What the lane must be whatever happens to it, against a count of our own.
    #[derive(Debug, Clone)]
    enum Step {
        Enter(usize),
        Wait(usize),
        Leave(usize),
        End(usize),
    }

    proptest::proptest! {
        #[test]
        fn no_slot_is_lost_or_held_twice_and_nobody_waits_beside_a_free_one(
            (width, part) in (1usize..5, 1usize..5),
            steps in proptest::collection::vec(
                proptest::prop_oneof![
                    (0usize..4).prop_map(Step::Enter),
                    (0usize..4).prop_map(Step::Wait),
                    (0usize..64).prop_map(Step::Leave),
                    (0usize..64).prop_map(Step::End),
                ],
                1..200,
            ),
        ) {
            let lane = Lane::new(width, part);
            let part = part.min(width);
            let mut held: Vec<(usize, Slot)> = Vec::new();
            let mut waits: Vec<(usize, Turn)> = Vec::new();
            for step in steps {
                match step {
                    Step::Enter(who) => {
                        held.extend(lane.try_enter(&name(&who.to_string())).map(|slot| (who, slot)));
                    }
                    Step::Wait(who) => waits.push((who, lane.wait(&name(&who.to_string())).unwrap())),
                    Step::Leave(n) if !waits.is_empty() => drop(waits.remove(n % waits.len())),
                    Step::End(n) if !held.is_empty() => drop(held.remove(n % held.len())),
                    Step::Leave(_) | Step::End(_) => {}
                }
                let mut still = Vec::new();
                for (who, mut turn) in waits {
                    match (&mut turn).now_or_never() {
                        Some(slot) => held.push((who, slot.expect("a lane gives slots"))),
                        None => still.push((who, turn)),
                    }
                }
                waits = still;
                let of = |who: usize| held.iter().filter(|(w, _)| *w == who).count();
                proptest::prop_assert!(held.len() <= width);
                proptest::prop_assert!((0..4).all(|who| of(who) <= part));
                proptest::prop_assert_eq!(lane.waiting(), waits.len());
                let could = |who: usize| held.len() < width && of(who) < part;
                proptest::prop_assert!(!waits.iter().any(|(who, _)| could(*who)), "somebody waits beside a free slot");
            }
        }
    }
}

//! Lanes of a warp that is one thread of `loom`: coroutines, which meet wherever they vote. An executor without them is one lane.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use generator::{Generator, Gn, done};

/// Lanes of a warp.
const LANES: u32 = 32;
/// Words of a lane's stack.
const STACK: usize = 1 << 12;

/// A warp whose lanes run in turn.
#[derive(Default)]
struct Warp {
    /// The lane that runs.
    lane: Cell<u32>,
    /// Whether it has come to a vote; else it has let another thread go on.
    votes: Cell<bool>,
    /// What each lane says in this vote, and what all have said in the last one.
    saying: RefCell<[u32; LANES as usize]>,
    said: RefCell<[u32; LANES as usize]>,
    /// What has been loaded since then, by address and how often the lane has asked for it before: one instruction of all lanes.
    loaded: RefCell<HashMap<(usize, u32), u64>>,
    /// By lane and address.
    asked: RefCell<HashMap<(u32, usize), u32>>,
}

loom::thread_local! {
    static WARP: RefCell<Option<Rc<Warp>>> = RefCell::new(None);
}

fn warp() -> Option<Rc<Warp>> {
    WARP.with(|warp| warp.borrow().clone())
}

/// This lane.
pub fn lane() -> u32 {
    warp().map_or(0, |warp| warp.lane.get())
}

/// Lanes that call together.
pub fn lanes() -> u32 {
    if warp().is_some() { LANES } else { 1 }
}

/// What all lanes say.
fn say(warp: &Warp, value: u32) {
    warp.saying.borrow_mut()[warp.lane.get() as usize] = value;
    warp.votes.set(true);
    // The innermost coroutine is the lane.
    #[allow(deprecated)]
    generator::yield_with(());
}

/// The lanes in which `condition` holds.
pub fn vote(condition: bool) -> u32 {
    let Some(warp) = warp() else { return condition.into() };
    say(&warp, condition.into());
    (0..LANES).fold(0, |bits, lane| bits | warp.said.borrow()[lane as usize] << lane)
}

/// The value of lane `from`.
pub fn broadcast(value: u32, from: u32) -> u32 {
    let Some(warp) = warp() else { return value };
    say(&warp, value);
    warp.said.borrow()[from as usize]
}

/// What `load` loads at `at`: lanes that do the same between two votes get the same.
pub fn once(at: usize, load: impl FnOnce() -> u64) -> u64 {
    let Some(warp) = warp() else { return load() };
    let nth = {
        let mut asked = warp.asked.borrow_mut();
        let asked = asked.entry((warp.lane.get(), at)).or_default();
        *asked += 1;
        *asked
    };
    if let Some(&value) = warp.loaded.borrow().get(&(at, nth)) {
        return value;
    }
    let value = load();
    warp.loaded.borrow_mut().insert((at, nth), value);
    value
}

/// What only this thread calls.
#[derive(Clone, Copy)]
struct Own<'a>(&'a dyn Fn());

// SAFETY: coroutines of one thread have it, which do not leave it.
unsafe impl Send for Own<'_> {}

/// Runs `body` as every lane of this thread.
pub fn run(body: &dyn Fn()) {
    let shared = Rc::new(Warp::default());
    WARP.with(|warp| *warp.borrow_mut() = Some(shared.clone()));
    let body = Own(body);
    let lane = |_| {
        // Not one with a scope: what `loom` yields by has none.
        Gn::<()>::new_opt(STACK, move || {
            let Own(body) = { body };
            body();
            done!();
        })
    };
    let mut lanes: Vec<Generator<'_, (), ()>> = (0..LANES).map(lane).collect();
    loop {
        for (number, lane) in (0..).zip(&mut lanes) {
            shared.lane.set(number);
            shared.votes.set(false);
            lane.resume();
            while !lane.is_done() && !shared.votes.get() {
                // Another thread goes on where the lane would have let it.
                #[allow(deprecated)]
                generator::yield_with(());
                shared.lane.set(number);
                lane.resume();
            }
        }
        let ended = lanes.iter().filter(|lane| lane.is_done()).count();
        if ended == lanes.len() {
            break;
        }
        assert_eq!(ended, 0, "lanes part");
        shared.said.replace(*shared.saying.borrow());
        shared.loaded.borrow_mut().clear();
        shared.asked.borrow_mut().clear();
    }
    WARP.with(|warp| *warp.borrow_mut() = None);
}

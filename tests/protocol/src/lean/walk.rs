//! One random interleaving of many calls: lanes are coroutines, before any access another one may go on, and a load may see an old store as long as clocks let it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use generator::{Gn, LocalGenerator, Scope, done};

use super::calls::Call;
use super::{Lack, Machine, Setting, Thread, World};
use crate::walk::Dice;

/// What coroutines share.
struct Shared {
    dice: Dice,
    /// One access in so many lets others go on.
    every: u32,
    /// Numbers of stores, by word, the last one behind.
    stores: RefCell<HashMap<usize, Vec<u64>>>,
    /// What a thread has seen of a word: it sees no older one again.
    seen: RefCell<HashMap<(usize, usize), usize>>,
    come: RefCell<[u32; 4]>,
}

/// Polls in vain before it is said that a wait does not end.
const PATIENCE: u32 = 1 << 14;
/// Words of a coroutine's stack.
const STACK: usize = 1 << 14;

struct Walker<'s, 'g> {
    shared: Rc<Shared>,
    scope: RefCell<Scope<'s, 'g, (), ()>>,
}

impl Walker<'_, '_> {
    fn switch(&self) {
        self.scope.borrow_mut().yield_with(());
    }

    fn step(&self) {
        if self.shared.dice.below(self.shared.every) == 0 {
            self.switch();
        }
    }
}

impl Machine for Walker<'_, '_> {
    const TOGETHER: bool = false;
    fn load(&self, world: &World, thread: usize, word: usize) -> u64 {
        self.step();
        let (mut stores, mut seen) = (self.shared.stores.borrow_mut(), self.shared.seen.borrow_mut());
        let stores = stores.entry(word).or_insert_with(|| vec![world.first(word)]);
        let (seen, newest) = (seen.entry((thread, word)).or_insert(0), stores.len() - 1);
        let known = |&n: &usize| world.order.borrow().knows(thread, stores[n]);
        let oldest = (*seen + 1..=newest).rev().find(known).unwrap_or(*seen);
        let dice = &self.shared.dice;
        *seen = if dice.below(2) == 0 { newest } else { oldest + dice.below((newest - oldest + 1) as u32) as usize };
        stores[*seen]
    }
    fn store(&self, world: &World, word: usize, number: impl FnOnce() -> u64) {
        self.step();
        let mut stores = self.shared.stores.borrow_mut();
        stores.entry(word).or_insert_with(|| vec![world.first(word)]).push(number());
    }
    fn acquire(&self) {}
    fn release(&self) {}
    fn pause(&self, polls: u32) {
        assert!(polls < PATIENCE, "nobody gets on");
        self.switch();
    }
    fn meet(&self, rank: u32, lanes: u32, times: u32) {
        self.shared.come.borrow_mut()[rank as usize] += 1;
        let mut polls = 0;
        while self.shared.come.borrow()[rank as usize] < lanes * times {
            polls += 1;
            self.pause(polls);
        }
    }
}

/// Makes `calls` in an order that `seed` names; panics at what is wrong. How many stores there were.
pub fn walk(setting: Setting, calls: &[Call], lack: Option<Lack>, seed: u64) -> usize {
    let dice = Dice::new(seed);
    let tensor = calls.iter().map(|call| call.words(setting.ranks)).max().unwrap_or(0);
    let world = Rc::new(World::new(setting, tensor, lack));
    let shared =
        Rc::new(Shared { every: 1 + dice.below(40), dice, stores: RefCell::default(), seen: RefCell::default(), come: RefCell::default() });
    let lane = |(number, who)| -> LocalGenerator<'_, (), ()> {
        let (world, shared) = (world.clone(), shared.clone());
        Gn::new_scoped_opt_local(STACK, move |scope| {
            let machine = Walker { shared: shared.clone(), scope: RefCell::new(scope) };
            Thread::new(world.clone(), machine, number, who).make(calls);
            done!();
        })
    };
    let mut running: Vec<_> = setting.threads().enumerate().map(lane).collect();
    while !running.is_empty() {
        let next = shared.dice.below(running.len() as u32) as usize;
        running[next].resume();
        if running[next].is_done() {
            drop(running.swap_remove(next));
        }
    }
    world.contents.borrow().len()
}

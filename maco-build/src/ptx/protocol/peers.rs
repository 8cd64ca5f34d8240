//! Rules of channels: words, data and packets that other ranks or the host store or read. Their scope is `.sys`, and so is that of the fences beside them.

use std::collections::BTreeSet;

use maco_ptx::Statement;

use super::Rules;
use super::statement::*;
use crate::ptx::flow::{Way, address};

/// Tags of accesses that other ranks or the host may see.
const PEERS: [&str; 9] =
    ["get.sys", "packet.load", "packet.store", "put.sys", "signal.sys", "stop.sys", "tell.sys", "trigger.sys", "wait.sys"];
const WAITS: Is = |s| s.tag == Some("wait.sys");
const SIGNAL: Is = |s| s.tag == Some("signal.sys");
const TRIGGER: Is = |s| s.tag == Some("trigger.sys");
const ACQUIRE_SYS: Is = |s| s.opcode() == "fence.acquire.sys";
const RELEASE_SYS: Is = |s| s.opcode() == "fence.release.sys";

/// An access of a channel.
pub(super) fn of_channel(statement: &Statement<'_>) -> bool {
    statement.tag.is_some_and(|tag| PEERS.contains(&tag))
}

impl Rules<'_, '_, '_> {
    pub(super) fn peers(&mut self) {
        let channels = self.flow.all(of_channel);
        for &at in channels.iter().filter(|&&at| !part(&self.flow.statements[at], "sys")).collect::<Vec<_>>() {
            self.broken(at, "a word that another rank or the host uses: its scope is `.sys`");
        }
        // Whatever its tag: what is known to be a peer's is one wherever it is used.
        let flow = &self.flow;
        let place = |at: usize| address(&flow.statements[at], 0).map(|register| flow.value(register));
        let words: BTreeSet<_> = channels.iter().filter_map(|&at| place(at)).collect();
        let narrow = |at: &usize| {
            let statement = &flow.statements[*at];
            let accesses = ["ld.", "st.", "red.", "atom."].into_iter().any(|start| op(statement, start));
            accesses && (part(statement, "gpu") || part(statement, "cta")) && place(*at).is_some_and(|place| words.contains(&place))
        };
        let narrow: Vec<usize> = (0..flow.statements.len()).filter(narrow).collect();
        for at in narrow {
            self.broken(
                at,
                "elsewhere an access of `.sys` scope has this address: another rank or the host uses the word, so that its scope is `.sys`",
            );
        }
        self.sometimes(
            WAITS,
            Way::Forward,
            ACQUIRE_SYS,
            SIGNAL,
            "what another rank has published may not be visible: `fence.acquire.sys` belongs behind a poll that saw its value; one of `.gpu` scope orders nothing of a peer",
        );
        // By threads that store boxes in a peer's memory, and tell it; what flags decide is whether they do, not whether they fence before.
        let unfenced = |&at: &usize| self.flow.may_meet(at, Way::Forward, |s| SIGNAL(s) || TRIGGER(s), PROXY_GLOBAL);
        for at in self.flow.all(STORED).into_iter().filter(unfenced).collect::<Vec<_>>() {
            self.broken(
                at,
                "another rank may not see what TMA wrote: `fence.proxy.async.global` belongs on every path between its completion and a signal of scope `.sys`",
            );
        }
        self.always(
            TRIGGER,
            Way::Backward,
            RELEASE_SYS,
            |s| WAITS(s) || TRIGGER(s),
            "the proxy may copy what is not there yet: `fence.release.sys` belongs between the data and the trigger",
        );
    }
}

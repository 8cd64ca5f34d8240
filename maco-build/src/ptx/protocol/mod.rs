//! Fences and scopes of a megakernel's entry: what orders memory between its roles, its CTAs and the proxies. Functions that it calls and that
//! have a part in this are looked at where they are called, as if they had been inlined.
//!
//! Neither rustc nor a model of the protocol sees them: a build without one of them runs, nearly always. Rules are relations of
//! instructions on the paths of the function, so code may move. Where flags of a descriptor decide at run time whether a fence is needed,
//! there must be a path with it; elsewhere it must be on every path.

mod called;
mod peers;
mod scratch;
mod statement;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use maco_ptx::{Function, Statement};

use self::statement::*;
use super::flow::{Flow, Way, address, operands, result};
use super::lint::Report;

pub(super) use self::called::{check_called, followed};

/// Whether a function is an entry that a macro of MACO made: only those keep the protocol.
pub(super) fn concerns(function: &Function<'_>) -> bool {
    function.name.starts_with("maco_")
}

/// Every rule.
pub(super) fn check(function: &Function<'_>, report: &mut Report<'_>) {
    let flow = Flow::new(function);
    let mut rules = Rules { flow, function: function.name, report };
    rules.launches();
    rules.scopes();
    rules.barriers();
    rules.copies();
    rules.results();
    rules.scratch();
    rules.waits();
    rules.gates();
    rules.parts();
    rules.signals();
    rules.reports();
    rules.peers();
}

struct Rules<'a, 'r, 'm> {
    flow: Flow<'a>,
    /// The symbol.
    function: &'a str,
    report: &'r mut Report<'m>,
}

impl Rules<'_, '_, '_> {
    fn broken(&mut self, at: usize, text: &str) {
        self.report.add(&self.flow.statements[at], text);
    }

    /// Instructions that no entry can do without; in another form the rules about them would see nothing.
    fn present(&mut self, is: Is, what: &str) {
        if let (false, Some(first)) = (self.flow.statements.iter().any(is), self.flow.statements.first()) {
            self.report.add_to(self.function, first, format!("there is no `{what}` in this entry"));
        }
    }

    /// From each that `is` accepts every path meets `hit` before `stop`.
    fn always(&mut self, is: impl Fn(&Statement<'_>) -> bool, way: Way, hit: Is, stop: Is, text: &str) {
        for at in self.flow.all(is) {
            if !self.flow.meets(at, way, hit, stop) {
                self.broken(at, text);
            }
        }
    }

    /// From each that `is` accepts some path meets `hit` before `stop`.
    fn sometimes(&mut self, is: impl Fn(&Statement<'_>) -> bool, way: Way, hit: Is, stop: Is, text: &str) {
        for at in self.flow.all(is) {
            if !self.flow.may_meet(at, way, hit, stop) {
                self.broken(at, text);
            }
        }
    }

    /// A launch may begin before the kernel before it has ended: only then it touches what launches write, or lets its roles begin.
    fn launches(&mut self) {
        const SHARED: Is = |s| part(s, "global") && part(s, "gpu") && !op(s, "fence.") || ALL_THREADS(s);
        const ENDED: Is = |s| s.opcode() == "griddepcontrol.wait";
        self.always(
            SHARED,
            Way::Backward,
            ENDED,
            NEVER,
            "the launch before may not have ended: `griddepcontrol.wait` belongs before the first access to what it writes",
        );
    }

    /// Counters and rings are of one GPU, a CTA's own words of the CTA; what the host reads is only written.
    fn scopes(&mut self) {
        for at in 0..self.flow.statements.len() {
            let statement = &self.flow.statements[at];
            // They have rules of their own.
            if peers::of_channel(statement) {
                continue;
            }
            let has = |wanted| part(statement, wanted);
            let ordered = ["relaxed", "acquire", "release", "acq_rel"].into_iter().any(has);
            let text = if ["ld.", "st.", "red.", "atom."].into_iter().any(|start| op(statement, start)) && ordered {
                match () {
                    () if has("global") && !has("gpu") => "words of global memory are shared by the CTAs of one GPU: their scope is `.gpu`",
                    () if (has("shared") || has("shared::cta")) && !has("cta") => {
                        "words of shared memory are one CTA's: their scope is `.cta`"
                    }
                    () if has("shared::cta") && has("relaxed") => {
                        "a word that announces a task orders what its reader goes on to read: it is stored by `st.release.cta` and loaded by `ld.acquire.cta`"
                    }
                    () if !has("global") && has("gpu") => {
                        "an access of `.gpu` scope says `.global`: a pointer to a peer or the host needs `.sys`"
                    }
                    () if has("sys") && !op(statement, "st.") => "only the host's words have scope `.sys`, and nobody loads them",
                    () => continue,
                }
            } else if BARRIER(statement) && ["relaxed", "cluster", "gpu", "sys"].into_iter().any(has) {
                "arrivals at an mbarrier release, and waits acquire, among the threads of the CTA"
            } else {
                continue;
            };
            if !statement.allows("scope") {
                self.broken(at, text);
            }
        }
    }

    fn barriers(&mut self) {
        const INITIALISED: Is = |s| s.opcode() == "fence.mbarrier_init.release.cluster";
        self.always(
            INIT,
            Way::Forward,
            INITIALISED,
            ALL_THREADS,
            "an mbarrier that TMA may not know: `fence.mbarrier_init` belongs between `mbarrier.init` and the barrier of all threads",
        );
    }

    /// TMA reads through another proxy than threads write.
    fn copies(&mut self) {
        let fenced = "TMA may not see what threads wrote: `fence.proxy.async.global` belongs before the loads of each task";
        // A body's copies of boxes have it where they acquire their tensor map: `scratch.rs`.
        self.always(|s| COPY(s) && !BODY_LOAD(s), Way::Backward, PROXY_GLOBAL, NEVER, fenced);
        // Behind the last load too: one fence for all tasks is too early.
        self.sometimes(COPY, Way::Forward, PROXY_GLOBAL, NEVER, fenced);
        for at in self.flow.all(|s| TMA_LOAD(s) || TMA_STORE(s)) {
            let statement = &self.flow.statements[at];
            // A load's first pair of brackets is its target in shared memory.
            let map = address(statement, usize::from(TMA_LOAD(statement))).map(|register| self.flow.value(register));
            let same = |s: &Statement<'_>| PROXY_MAP(s) && address(s, 0).map(|register| self.flow.value(register)) == map;
            // Bodies acquire what they copy by themselves: that of another task, in the same register, is none.
            let until: Is = if BODY_LOAD(statement) || BODY_STORE(statement) { |s| ARRIVE(s) || WAIT(s) } else { NEVER };
            if !self.flow.may_meet(at, Way::Backward, same, until) {
                self.broken(
                    at,
                    "TMA may not see the tensor map, which the host wrote: `fence.proxy.tensormap::generic.acquire.gpu` belongs before its first use",
                );
            }
        }
        self.always(
            STAGED,
            Way::Forward,
            PROXY_SHARED,
            ARRIVE,
            "TMA may not see what `stmatrix` wrote: `fence.proxy.async.shared::cta` belongs before the arrival that hands it over",
        );
        let consumers = self.consumers();
        for at in consumers {
            let statement = &self.flow.statements[at];
            if TURNED(statement) && !self.flow.meets(at, Way::Forward, PROXY_SHARED, MET) {
                self.broken(
                    at,
                    "tensor cores may not see what was transposed, or what an elementwise prologue wrote: `fence.proxy.async.shared::cta` belongs before the barrier behind which they read",
                );
            } else if TURNED(statement) && !self.flow.meets(at, Way::Forward, MET, MULTIPLY) {
                self.broken(at, "other warps may not have transposed their blocks, or run their part of the elementwise prologue: consumers meet (`bar.sync`) between that and `wgmma`");
            }
        }
    }

    /// Results on their way to global memory.
    fn results(&mut self) {
        self.always(TMA_STORE, Way::Forward, COMMIT, COPIED, "a TMA store that is not committed is never waited for");
        self.always(
            COMMIT,
            Way::Forward,
            COPIED,
            ARRIVE,
            "shared memory is given back before `cp.async.bulk.wait_group` says that TMA has read it",
        );
        self.always(
            TMA_STORE,
            Way::Forward,
            STORED,
            |s| RELEASE(s) || ADD(s),
            "results may not have arrived when they are signalled: `cp.async.bulk.wait_group 0` belongs behind TMA stores",
        );
        self.sometimes(
            STORED,
            Way::Forward,
            PROXY_GLOBAL,
            RELEASE,
            "threads may not see what TMA wrote: `fence.proxy.async.global` belongs between its completion and the signal",
        );
        // Nobody reads by TMA what threads write if nobody reads by TMA.
        if self.flow.statements.iter().any(COPY) {
            let consumers = self.consumers();
            // Not those of a body's own copies.
            let ends: BTreeSet<usize> =
                consumers.iter().copied().filter(|&at| PROXY_GLOBAL(&self.flow.statements[at]) && !self.of_copy(at)).collect();
            let writes: Vec<usize> = consumers.into_iter().filter(|&at| WRITE(&self.flow.statements[at])).collect();
            const TEXT: &str = "TMA may not see this result: `fence.proxy.async.global` belongs between the task's body and its end";
            for &at in &writes {
                if !self.flow.reaches(at, Way::Forward, ALL_THREADS, |next| ends.contains(&next)) {
                    self.broken(at, TEXT);
                }
            }
            // Tasks of all threads have one end. Those of one warp have another one, and a third where a slot has but one: which of them a body comes to, flags say.
            let kinds = if self.flow.statements.iter().any(ALONE) { 3 } else { 1 };
            if let (Some(&at), true) = (writes.first(), ends.len() < kinds) {
                self.broken(at, TEXT);
            }
        }
    }

    /// Whether a fence is the one before a copy to shared memory, or behind the completion of one from there.
    fn of_copy(&self, at: usize) -> bool {
        self.flow.meets(at, Way::Forward, COPY, ARRIVE) || self.flow.meets(at, Way::Backward, STORED, ARRIVE)
    }

    /// A poll sees a value; the fence behind it makes visible what came before that value.
    fn waits(&mut self) {
        let acquired =
            "what was signalled may not be visible: `fence.acquire.gpu` belongs between a poll that saw its value and what it lets run";
        self.present(ACQUIRE, "fence.acquire.gpu");
        self.present(LOAD, "ld.relaxed.gpu.global");
        let flow = &self.flow;
        let place = |at: usize| address(&flow.statements[at], 0).map(|register| flow.value(register));
        // The abort word is claimed by whoever reports, and whoever enters the launch counts itself; neither orders anything.
        let claimed: BTreeSet<_> = flow.all(CLAIM).into_iter().map(place).collect();
        let repeated = |at: usize| flow.reaches(at, Way::Forward, NEVER, |next| next == at);
        let polls: Vec<usize> = flow.all(LOAD).into_iter().filter(|&at| !claimed.contains(&place(at)) && repeated(at)).collect();
        // Counters that data names: the name is a result of tasks just waited for.
        let names: BTreeSet<&str> = flow
            .all(LOAD)
            .into_iter()
            .filter_map(|at| address(&flow.statements[at], 0))
            .flat_map(|register| flow.sources(register))
            .collect();
        let named = polls.iter().filter(|&&at| result(&flow.statements[at]).is_some_and(|name| names.contains(name)));
        let early = named.filter(|&&at| !flow.meets(at, Way::Backward, ACQUIRE, NEVER));
        let broken: BTreeSet<usize> = self.unfenced(&polls).into_iter().chain(early.copied()).collect();
        broken.into_iter().for_each(|at| self.broken(at, acquired));
        // A warp that runs a task by itself has two ways from a poll: to the task, or to its end without it.
        const ENDS: Is = |s| ARRIVE(s) || RELEASE(s) || op(s, "brx");
        let without = |&&at: &&usize| ALONE(&self.flow.statements[at]) && !self.flow.meets_known(at, |s| ACQUIRE(s) || GIVEN_UP(s), ENDS);
        polls.iter().filter(without).copied().collect::<Vec<_>>().into_iter().for_each(|at| self.broken(at, acquired));
        self.always(
            ACQUIRE,
            Way::Forward,
            MET_WARP,
            ARRIVE,
            "lanes that did not fence may go on: the warp meets (`bar.warp.sync`) between `fence.acquire.gpu` and what it lets run",
        );
    }

    /// Polls with no fence between the value that they saw and what it lets run.
    fn unfenced(&self, polls: &[usize]) -> Vec<usize> {
        let flow = &self.flow;
        // A look, between release and signal, at whether there is room for it.
        let room = |at: usize| flow.meets(at, Way::Backward, RELEASE, |s| WAIT(s) || ACQUIRE(s));
        // Before whoever waits for it is let go, before it waits itself, and before a task's body; a mere look at an mbarrier may be between. Whoever stops
        // the CTA acquires what has begun: that fence, behind the one that closes the gates, is of no poll before it.
        const LATE: Is = |s| ARRIVE(s) || op(s, "mbarrier.try_wait") || op(s, "brx") || SEQUENTIAL(s);
        // A warp that goes round until it sees a value meets before it goes on, and so do consumers at a gate; a scheduler's sweep meets on the way.
        const THROUGH: Is = |s| LATE(s) || MET_WARP(s);
        let rounds: Vec<(usize, BTreeSet<usize>)> =
            polls.iter().map(|&at| (at, flow.reach(at, Way::Forward, MET_WARP).into_iter().collect())).collect();
        let consumers = self.consumers();
        let unfenced = rounds.iter().filter(|(at, round)| {
            // Another wait. Lanes that hand nothing on come to it with nothing between, and the fence behind it is not this one's.
            let other = |(other, its): &&(usize, BTreeSet<usize>)| its.contains(other) && !(its.contains(at) && round.contains(other));
            let others: Vec<_> = rounds.iter().filter(other).map(|&(other, _)| &flow.statements[other]).collect();
            let late = |s: &Statement<'_>| match round.contains(at) {
                true => THROUGH(s) || others.iter().any(|other| std::ptr::eq(*other, s)),
                false if consumers.contains(at) => THROUGH(s),
                false => LATE(s),
            };
            !flow.may_meet(*at, Way::Forward, ACQUIRE, late) && !room(*at)
        });
        unfenced.map(|&(at, _)| at).collect()
    }

    /// Consumer warps that look at counters, and whoever stops the CTA: each says so before it asks about the other.
    fn gates(&mut self) {
        const STOP: i64 = 2;
        let consumers = self.consumers();
        let far: Is = |s| ARRIVE(s) || op(s, "mbarrier.try_wait");
        // A look whether other parts of a sum are there, in the midst of a task.
        let in_task = |flow: &Flow<'_>, at| flow.meets(at, Way::Backward, PART, far);
        for at in
            consumers.into_iter().filter(|&at| LOAD(&self.flow.statements[at]) && !ALONE(&self.flow.statements[at])).collect::<Vec<_>>()
        {
            if !in_task(&self.flow, at) && !self.flow.meets(at, Way::Backward, SEQUENTIAL, far) {
                self.broken(
                    at,
                    "a warp may begin what others never do: `fence.sc.cta` belongs between its announcement and its looks at counters",
                );
            }
        }
        let stops = |at: &usize| {
            let value = operands(self.flow.statements[*at].text).last().and_then(|value| self.flow.constants(*at, value));
            value.is_some_and(|numbers| numbers.contains(&STOP))
        };
        for at in self.flow.all(HALTS).into_iter().filter(stops).collect::<Vec<_>>() {
            if !self.flow.meets(at, Way::Backward, SEQUENTIAL, NEVER) {
                self.broken(
                    at,
                    "a CTA may stop while a warp begins: `fence.sc.cta` belongs between closing its gates and asking who has gone through",
                );
            }
        }
    }

    /// Sums made in parts: the thread that announces its CTA's part has met those that wrote it, and those that read other parts meet it.
    fn parts(&mut self) {
        self.always(
            PART,
            Way::Backward,
            MET,
            WRITE,
            "a part may not be whole when it is announced: its threads meet (`bar.sync`) between writing it and its arrival",
        );
        self.always(
            PART,
            Way::Backward,
            RELEASE,
            MET,
            "an arrival may overtake its part of a sum: `fence.release.gpu` belongs between the barrier of its threads and the arrival",
        );
        self.always(
            PART,
            Way::Forward,
            ACQUIRE,
            MET,
            "other parts may not be visible: `fence.acquire.gpu` belongs between an arrival and the barrier behind which parts are added up",
        );
    }

    /// Statements that consumer warps run, from the barrier at which they meet the other roles to the one at their end.
    fn consumers(&self) -> BTreeSet<usize> {
        let after = |at: usize| self.flow.reach(at, Way::Forward, ALL_THREADS).into_iter();
        let met = self.flow.all(|s| op(s, "setmaxnreg.inc")).into_iter().flat_map(after);
        met.filter(|&at| ALL_THREADS(&self.flow.statements[at])).flat_map(after).collect()
    }

    /// A signal says that everything before it is done.
    fn signals(&mut self) {
        const RELEASED: &str =
            "a signal may overtake what it announces: `fence.release.gpu` belongs between the end of a task and its relaxed signals";
        self.present(RELEASE, "fence.release.gpu");
        self.present(ADD, "red.relaxed.gpu.global.add");
        self.always(ADD, Way::Backward, RELEASE, |s| WAIT(s) || TMA_STORE(s), RELEASED);
        // Places are emptied by 0, and a list ends with -1: neither announces anything.
        let announces = |&at: &usize| {
            let value = operands(self.flow.statements[at].text).last().and_then(|value| self.flow.constants(at, value));
            value.is_none_or(|numbers| numbers.iter().any(|number| ![0, -1].contains(number)))
        };
        // What a message goes on to say comes before the fence that the message is behind: nobody looks at it until then.
        const LOOKED: Is = |s| LOAD(s) || WAIT(s) || ACQUIRE(s) || ARRIVE(s);
        let is_said = |at: &usize| !self.flow.meets(*at, Way::Forward, RELEASE, LOOKED);
        let messages: Vec<usize> = self.flow.all(STORE).into_iter().filter(announces).filter(is_said).collect();
        for at in messages {
            if !self.flow.meets(at, Way::Backward, RELEASE, |s| WAIT(s) || TMA_STORE(s) || ACQUIRE(s)) {
                self.broken(at, RELEASED);
            }
        }
    }

    /// The black box is in the host's memory: words of `.sys` scope, and then one that releases them.
    fn reports(&mut self) {
        self.present(REPORT, "st.release.sys");
        let ends = |s: &Statement<'_>| s.label().is_some_and(|label| !label.starts_with("$L__tmp")) || s.branch().is_some();
        // In straight lines: the number of words so far.
        let (mut words, mut reports) = (Vec::new(), Vec::new());
        for (at, statement) in self.flow.statements.iter().enumerate() {
            match statement {
                s if WORD(s) => words.push(at),
                s if REPORT(s) => reports.push((at, std::mem::take(&mut words).len())),
                s if ends(s) && !words.is_empty() => break,
                _ => {}
            }
        }
        if let Some(at) = words.first() {
            self.broken(*at, "the host may see a part of a report: `st.release.sys` belongs behind its words");
        }
        let most = reports.iter().map(|(_, words)| *words).max().unwrap_or(0);
        for (at, _) in reports.into_iter().filter(|(_, words)| *words < most) {
            self.broken(at, "a word of this report is missing or not of scope `.sys`: others have more of them before `st.release.sys`");
        }
    }
}

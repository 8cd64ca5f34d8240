//! Fences and scopes of a megakernel's entry: what orders memory between its roles, its CTAs and the proxies.
//!
//! Neither rustc nor a model of the protocol sees them: a build without one of them runs, nearly always. Rules are relations of
//! instructions on the paths of the function, so code may move. Where flags of a descriptor decide at run time whether a fence is needed,
//! there must be a path with it; elsewhere it must be on every path.

use std::collections::BTreeSet;

use super::flow::{Flow, Way, address, operands, result};
use super::lint::Report;
use super::module::{Function, Module, Statement};

type Is = fn(&Statement<'_>) -> bool;

fn op(statement: &Statement<'_>, start: &str) -> bool {
    statement.opcode().starts_with(start)
}

fn part(statement: &Statement<'_>, wanted: &str) -> bool {
    statement.opcode().split('.').any(|part| part == wanted)
}

const ACQUIRE: Is = |s| s.opcode() == "fence.acquire.gpu";
const RELEASE: Is = |s| s.opcode() == "fence.release.gpu";
const ORDERED: Is = |s| RELEASE(s) || op(s, "atom.acq_rel.gpu");
const PROXY_GLOBAL: Is = |s| s.opcode() == "fence.proxy.async.global";
const PROXY_SHARED: Is = |s| s.opcode() == "fence.proxy.async.shared::cta";
const PROXY_MAP: Is = |s| s.opcode() == "fence.proxy.tensormap::generic.acquire.gpu";
const SEQUENTIAL: Is = |s| s.opcode() == "fence.sc.cta";
const INIT: Is = |s| op(s, "mbarrier.init");
/// Of the runtime; those of bodies at their own barriers say `.release` and `.acquire`.
const ARRIVE: Is = |s| op(s, "mbarrier.arrive") && !part(s, "release");
const WAIT: Is = |s| (op(s, "mbarrier.try_wait") || op(s, "mbarrier.test_wait")) && !part(s, "acquire");
const BARRIER: Is = |s| op(s, "mbarrier.arrive") || op(s, "mbarrier.try_wait") || op(s, "mbarrier.test_wait");
const INVALIDATE: Is = |s| op(s, "mbarrier.inval");
const ALL_THREADS: Is = |s| op(s, "bar.sync") && s.text.ends_with(" 0");
const LOAD: Is = |s| op(s, "ld.relaxed.gpu.global");
const ADD: Is = |s| op(s, "red.relaxed.gpu.global.add");
const STORE: Is = |s| op(s, "st.relaxed.gpu.global");
const CLAIM: Is = |s| op(s, "atom.relaxed.gpu.global.cas") || op(s, "atom.relaxed.gpu.global.add");
/// A part of a sum is there.
const PART: Is = |s| op(s, "atom.relaxed.gpu.global.inc");
/// A barrier of some of the threads.
const MET: Is = |s| op(s, "bar.sync") && !ALL_THREADS(s);
/// Boxes of a tensor, or rows as they lie.
const COPY: Is = |s| op(s, "cp.async.bulk.") && s.opcode().contains("mbarrier::complete_tx");
const TMA_LOAD: Is = |s| COPY(s) && op(s, "cp.async.bulk.tensor");
const TMA_STORE: Is = |s| op(s, "cp.async.bulk.tensor") && s.opcode().ends_with("bulk_group");
/// A body's copy from its scratch.
const BODY_STORE: Is = |s| op(s, "cp.async.bulk.global.shared::cta");
/// What a body writes to its scratch through the generic proxy. The runtime's own words are `st.shared`.
const SCRATCH: Is = |s| op(s, "st.weak.shared") || STAGED(s) || INVALIDATE(s);
const COMMIT: Is = |s| op(s, "cp.async.bulk.commit_group");
const COPIED: Is = |s| op(s, "cp.async.bulk.wait_group");
const STORED: Is = |s| s.opcode() == "cp.async.bulk.wait_group" && s.text.ends_with(" 0");
const STAGED: Is = |s| op(s, "stmatrix");
/// Sums of several warps, which consumers leave in a stage of the ring.
const SUMS: Is = |s| op(s, "st.shared.v2");
/// Operands of tf32 in a stage of the ring, which consumers have transposed.
const TURNED: Is = |s| op(s, "st.shared.v4");
const MULTIPLY: Is = |s| op(s, "wgmma.mma_async");
/// A store of a task's result by its own threads, or a call of a body, which stores them. A panic comes to no end.
const WRITE: Is = |s| CALL(s) || op(s, "st.") && !["shared", "relaxed", "release", "param", "local"].iter().any(|other| part(s, other));
const CALL: Is = |s| (s.opcode() == "call" || op(s, "call.")) && !s.last;
const WORD: Is = |s| op(s, "st.relaxed.sys");
const REPORT: Is = |s| op(s, "st.release.sys");
const NEVER: Is = |_| false;

/// Whether a function is an entry that a macro of MACO made: only those keep the protocol.
pub(super) fn concerns(function: &Function<'_>) -> bool {
    function.name.starts_with("maco_")
}

/// The functions that entries call: bodies of tasks, and what these call.
pub(super) fn called<'a>(module: &'a Module<'a>) -> Vec<&'a Function<'a>> {
    let mut called: Vec<&Function<'_>> = Vec::new();
    let mut callers: Vec<&Function<'_>> = module.functions.iter().filter(|function| concerns(function)).collect();
    while let Some(caller) = callers.pop() {
        let calls = caller.body.iter().filter(|statement| CALL(statement));
        for word in calls.flat_map(|call| call.text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'))) {
            let callee = module.functions.iter().find(|function| function.name == word);
            if let Some(callee) = callee.filter(|callee| called.iter().all(|known| known.name != callee.name)) {
                called.push(callee);
                callers.push(callee);
            }
        }
    }
    called
}

/// A body has no part in the protocol: the rules look at entries only, and `wgmma` in a function is serialised.
pub(super) fn check_called(function: &Function<'_>, report: &mut Report<'_>) {
    const OF_ENTRIES: [&str; 6] = ["wgmma.", "setmaxnreg.", "mbarrier.", "cp.async.bulk", "fence.proxy", "bar.sync"];
    for statement in function.body.iter().filter(|statement| OF_ENTRIES.iter().any(|start| op(statement, start))) {
        report.add(statement, format!("`{}` in a function that a megakernel calls: it belongs into the entry", statement.opcode()));
    }
}

/// Every rule.
pub(super) fn check(function: &Function<'_>, report: &mut Report<'_>) {
    let flow = Flow::new(function);
    let mut rules = Rules { flow, report };
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
}

struct Rules<'a, 'r, 'm> {
    flow: Flow<'a>,
    report: &'r mut Report<'m>,
}

impl Rules<'_, '_, '_> {
    fn broken(&mut self, at: usize, text: &str) {
        self.report.add(&self.flow.statements[at], text);
    }

    /// Instructions that no entry can do without; in another form the rules about them would see nothing.
    fn present(&mut self, is: Is, what: &str) {
        if let (false, Some(first)) = (self.flow.statements.iter().any(is), self.flow.statements.first()) {
            self.report.add(first, format!("there is no `{what}` in this entry"));
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

    /// Counters and rings are of one GPU, a CTA's own words of the CTA; what the host reads is only written.
    fn scopes(&mut self) {
        for at in 0..self.flow.statements.len() {
            let statement = &self.flow.statements[at];
            let has = |wanted| part(statement, wanted);
            let ordered = ["relaxed", "acquire", "release", "acq_rel"].into_iter().any(has);
            let text = if ["ld.", "st.", "red.", "atom."].into_iter().any(|start| op(statement, start)) && ordered {
                match () {
                    () if has("global") && !has("gpu") => "words of global memory are shared by the CTAs of one GPU: their scope is `.gpu`",
                    () if (has("shared") || has("shared::cta")) && !has("cta") => {
                        "words of shared memory are one CTA's: their scope is `.cta`"
                    }
                    () if has("shared::cta") && has("relaxed") => {
                        "a notice announces what its reader goes on to read: it is stored by `st.release.cta` and loaded by `ld.acquire.cta`"
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
        self.always(COPY, Way::Backward, PROXY_GLOBAL, NEVER, fenced);
        // Behind the last load too: one fence for all tasks is too early.
        self.sometimes(COPY, Way::Forward, PROXY_GLOBAL, NEVER, fenced);
        for at in self.flow.all(|s| TMA_LOAD(s) || TMA_STORE(s)) {
            let statement = &self.flow.statements[at];
            // A load's first pair of brackets is its target in shared memory.
            let map = address(statement, usize::from(TMA_LOAD(statement))).map(|register| self.flow.value(register));
            let same = |s: &Statement<'_>| PROXY_MAP(s) && address(s, 0).map(|register| self.flow.value(register)) == map;
            if !self.flow.may_meet(at, Way::Backward, same, NEVER) {
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
            if SUMS(statement) && !self.flow.meets(at, Way::Forward, PROXY_SHARED, ARRIVE) {
                self.broken(
                    at,
                    "the stage's next bytes may be overtaken by these: `fence.proxy.async.shared::cta` belongs before the arrival that gives it back",
                );
            } else if TURNED(statement) && !self.flow.meets(at, Way::Forward, PROXY_SHARED, MET) {
                self.broken(
                    at,
                    "tensor cores may not see what was transposed: `fence.proxy.async.shared::cta` belongs before the barrier behind which they read",
                );
            } else if TURNED(statement) && !self.flow.meets(at, Way::Forward, MET, MULTIPLY) {
                self.broken(at, "other warps may not have transposed their blocks: consumers meet (`bar.sync`) between that and `wgmma`");
            }
        }
    }

    /// What bodies write to their scratch, pages of the ring, and copy from there.
    fn scratch(&mut self) {
        let consumers = self.consumers();
        for &at in consumers.iter().filter(|&&at| SCRATCH(&self.flow.statements[at])).collect::<Vec<_>>() {
            if !self.flow.meets(at, Way::Forward, PROXY_SHARED, ARRIVE) {
                self.broken(
                    at,
                    "the next bytes of a body's pages may be overtaken by these: `fence.proxy.async.shared::cta` belongs between the body and the arrival that gives its pages back",
                );
            }
            let copied: Is = |s| BODY_STORE(s) || COPY(s);
            let until: Is = |s| PROXY_SHARED(s) || ARRIVE(s);
            if self.flow.reach(at, Way::Forward, until).into_iter().any(|n| copied(&self.flow.statements[n])) {
                self.broken(
                    at,
                    "a body's copy may overtake what threads wrote before it: `fence.proxy.async.shared::cta` (`sync_copies`) belongs between the two",
                );
            }
        }
        for at in consumers.into_iter().filter(|&at| INIT(&self.flow.statements[at])).collect::<Vec<_>>() {
            // By the thread that has initialised it: other paths go by.
            if !self.flow.may_meet(at, Way::Forward, INVALIDATE, ARRIVE) {
                self.broken(
                    at,
                    "a body's mbarrier still is one when its page is given back: `mbarrier.inval` belongs to the end of its scope",
                );
            }
        }
        self.always(BODY_STORE, Way::Forward, COMMIT, ARRIVE, "a body's copy that is not committed is never waited for");
        self.always(
            BODY_STORE,
            Way::Forward,
            STORED,
            ARRIVE,
            "a body's copy may not have arrived when the task ends: `cp.async.bulk.wait_group 0` belongs behind it",
        );
        self.always(
            BODY_STORE,
            Way::Forward,
            PROXY_GLOBAL,
            ARRIVE,
            "threads may not see what a body's copy wrote: `fence.proxy.async.global` belongs behind its completion",
        );
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
            for at in consumers.into_iter().filter(|&at| WRITE(&self.flow.statements[at])).collect::<Vec<_>>() {
                if !self.flow.reach(at, Way::Forward, ALL_THREADS).iter().any(|next| ends.contains(next)) {
                    self.broken(at, "TMA may not see this result: `fence.proxy.async.global` belongs between the task's body and its end");
                }
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
        let repeated = |at: usize| flow.reach(at, Way::Forward, NEVER).contains(&at);
        let polls: Vec<usize> = flow.all(LOAD).into_iter().filter(|&at| !claimed.contains(&place(at)) && repeated(at)).collect();
        // A look, between release and signal, at whether there is room for it.
        let room = |at: usize| flow.meets(at, Way::Backward, RELEASE, |s| WAIT(s) || ACQUIRE(s));
        // Before whoever waits for it is let go, before it waits itself, and before a task's body; a mere look at an mbarrier may be between.
        const LATE: Is = |s| ARRIVE(s) || op(s, "mbarrier.try_wait") || op(s, "brx");
        // Consumers at a gate meet before they go through. Nothing else need be between a gate and the next one if there is no jump to bodies.
        const THROUGH: Is = |s| LATE(s) || op(s, "bar.warp.sync");
        let consumers = self.consumers();
        let bare = polls.iter().filter(|&&at| {
            let late = if consumers.contains(&at) { THROUGH } else { LATE };
            !flow.may_meet(at, Way::Forward, ACQUIRE, late) && !room(at)
        });
        // Counters that data names: the name is a result of tasks just waited for.
        let names: BTreeSet<&str> = flow
            .all(LOAD)
            .into_iter()
            .filter_map(|at| address(&flow.statements[at], 0))
            .flat_map(|register| flow.sources(register))
            .collect();
        let named = polls.iter().filter(|&&at| result(&flow.statements[at]).is_some_and(|name| names.contains(name)));
        let early = named.filter(|&&at| !flow.meets(at, Way::Backward, ACQUIRE, NEVER));
        let broken: BTreeSet<usize> = bare.chain(early).copied().collect();
        broken.into_iter().for_each(|at| self.broken(at, acquired));
        self.always(
            ACQUIRE,
            Way::Forward,
            |s| op(s, "bar.warp.sync"),
            ARRIVE,
            "lanes that did not fence may go on: the warp meets (`bar.warp.sync`) between `fence.acquire.gpu` and what it lets run",
        );
    }

    /// Consumer warps that look at counters, and whoever stops the CTA: each says so before it asks about the other.
    fn gates(&mut self) {
        const STOP: i64 = 2;
        let consumers = self.consumers();
        let far: Is = |s| ARRIVE(s) || op(s, "mbarrier.try_wait");
        // A look whether other parts of a sum are there, in the midst of a task.
        let in_task = |flow: &Flow<'_>, at| flow.meets(at, Way::Backward, PART, far);
        for at in consumers.into_iter().filter(|&at| LOAD(&self.flow.statements[at])).collect::<Vec<_>>() {
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
        for at in self.flow.all(|s| op(s, "st.shared")).into_iter().filter(stops).collect::<Vec<_>>() {
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

    /// Statements that consumer warps run.
    fn consumers(&self) -> BTreeSet<usize> {
        let begin = self.flow.all(|s| op(s, "setmaxnreg.inc"));
        begin.into_iter().flat_map(|at| self.flow.reach(at, Way::Forward, ALL_THREADS)).collect()
    }

    /// A signal says that everything before it is done.
    fn signals(&mut self) {
        const RELEASED: &str =
            "a signal may overtake what it announces: `fence.release.gpu` belongs between the end of a task and its relaxed signals";
        self.present(RELEASE, "fence.release.gpu");
        self.present(ADD, "red.relaxed.gpu.global.add");
        self.always(ADD, Way::Backward, ORDERED, |s| WAIT(s) || TMA_STORE(s), RELEASED);
        // Places are emptied by 0, and a list ends with -1: neither announces anything.
        let announces = |&at: &usize| {
            let value = operands(self.flow.statements[at].text).last().and_then(|value| self.flow.constants(at, value));
            value.is_none_or(|numbers| numbers.iter().any(|number| ![0, -1].contains(number)))
        };
        let messages: Vec<usize> = self.flow.all(STORE).into_iter().filter(announces).collect();
        for at in messages {
            if !self.flow.meets(at, Way::Backward, ORDERED, |s| WAIT(s) || TMA_STORE(s) || ACQUIRE(s)) {
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

#[cfg(test)]
mod tests {
    use crate::ptx::{Rules, lint};

    /// An entry with every role in short: loader, consumer, store warp, controller.
    const ENTRY: &str = "
mbarrier.init.shared::cta.b64 [%r1], %r2;
fence.mbarrier_init.release.cluster;
bar.sync 0;
ld.param.b64 %rd1, [maco_small_param_0];
add.s64 %rd2, %rd1, 4;
@%p1 bra $CONSUMER;
@%p2 bra $STORE;
@%p3 bra $CONTROL;
$LOADER:
fence.proxy.async.global;
fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128;
cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd3, {%r4, %r5, %r6}], [%r7];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd3], %r4, [%r7];
@%p4 bra $LOADER;
bra.uni $END;
$CONSUMER:
setmaxnreg.inc.sync.aligned.u32 216;
fence.sc.cta;
$LOOK:
ld.relaxed.gpu.global.u32 %r32, [%rd6];
@%p11 bra $LOOK;
fence.acquire.gpu; // of a gate
bar.warp.sync -1;
st.shared.v4.b32 [%r39], {%r9, %r10, %r11, %r12};
fence.proxy.async.shared::cta; // of transposed operands
bar.sync 5, 256; // of transposed operands
wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {%f1}, %rd17, %rd18, p, 1, 1;
mbarrier.init.shared::cta.b64 [%r40], %r41;
fence.mbarrier_init.release.cluster; // of a body
bar.sync 6, 128;
bar.sync 6, 64;
fence.proxy.async.global; // of a load
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r42], [%rd20], %r43, [%r40];
mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p14, [%r40], %r44;
st.weak.shared.u32 [%r42], 2;
mbarrier.arrive.release.cta.shared::cta.b64 _, [%r40];
fence.proxy.async.shared::cta; // of copies
bar.sync 4, 256;
cp.async.bulk.global.shared::cta.bulk_group [%rd20], [%r42], %r43;
cp.async.bulk.commit_group; // of a body
cp.async.bulk.wait_group 0; // of a body
fence.proxy.async.global; // of a store
mbarrier.inval.shared::cta.b64 [%r40];
fence.proxy.async.shared::cta; // of a body
mbarrier.arrive.shared::cta.b64 _, [%r45];
stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r8], {%r9, %r10, %r11, %r12};
fence.proxy.async.shared::cta;
mbarrier.arrive.shared::cta.b64 _, [%r13];
st.global.v4.b32 [%rd15], {%r9, %r10, %r11, %r12};
bar.sync 5, 256;
fence.release.gpu; // of a part
atom.relaxed.gpu.global.inc.u32 %r35, [%rd16], %r36;
$PARTS:
ld.relaxed.gpu.global.u32 %r37, [%rd16];
@%p12 bra $PARTS;
fence.acquire.gpu; // of parts
bar.warp.sync -1;
bar.sync 5, 256;
st.shared.v2.b32 [%r38], {%r9, %r10};
st.global.v4.b32 [%rd4], {%r9, %r10, %r11, %r12};
@%p13 bra $ENDED;
call.uni panics, ();
$ENDED:
fence.proxy.async.shared::cta; // of sums
mbarrier.arrive.shared::cta.b64 _, [%r14];
fence.proxy.async.global;
mbarrier.arrive.shared::cta.b64 _, [%r14];
bra.uni $END;
$STORE:
mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r13], %r15;
fence.proxy.tensormap::generic.acquire.gpu [%rd5], 128;
cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd5, {%r4, %r5, %r6}], [%r16];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
fence.proxy.async.global;
fence.release.gpu;
red.relaxed.gpu.global.add.u32 [%rd6], %r17;
mov.b32 %r18, 1;
st.relaxed.gpu.global.u32 [%rd7], %r18;
bra.uni $END;
$CONTROL:
mov.b32 %r18, 0;
st.relaxed.gpu.global.u32 [%rd8], %r18;
$POLL:
ld.relaxed.gpu.global.u32 %r19, [%rd6];
add.s64 %rd9, %rd1, 4;
ld.relaxed.gpu.global.u32 %r20, [%rd9];
@%p6 bra $LATE;
@%p7 bra $POLL;
fence.acquire.gpu;
bar.warp.sync -1;
mbarrier.arrive.shared::cta.b64 _, [%r21];
$NAMED:
ld.relaxed.gpu.global.u32 %r22, [%rd10];
mul.wide.u32 %rd11, %r22, 4;
ld.relaxed.gpu.global.u32 %r23, [%rd11];
@%p8 bra $NAMED;
fence.acquire.gpu; // of names
bar.warp.sync -1;
mbarrier.arrive.shared::cta.b64 _, [%r21];
bra.uni $END;
$LATE:
atom.relaxed.gpu.global.cas.b32 %r24, [%rd2], %r25, %r26;
@%p9 bra $END;
st.relaxed.sys.u32 [%rd12], %r27;
st.release.sys.u32 [%rd13], %r28;
@%p10 bra $END;
st.relaxed.sys.u32 [%rd14], %r27;
st.release.sys.u32 [%rd13], %r28;
fence.sc.cta; // of a stop
mov.b32 %r33, 2;
st.shared.b32 [%r34], %r33;
$END:
bar.sync 0;
";

    fn lint(body: &str) -> Vec<String> {
        let ptx = format!(
            ".version 8.6\n.target sm_90a\n.visible .entry maco_small(\n)\n{{\n{body}ret;\n}}\n.func panics()\n.noreturn\n{{\ntrap;\n}}\n"
        );
        lint::check(&ptx, &Rules::default()).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn an_entry_that_keeps_the_protocol() {
        assert_eq!(lint(ENTRY), Vec::<String>::new());
    }

    #[test]
    fn other_entries_are_not_concerned() {
        let ptx = ".version 8.6\n.visible .entry peer(\n)\n{\nld.relaxed.sys.global.u32 %r1, [%rd1];\nret;\n}\n";
        assert_eq!(lint::check(ptx, &Rules::default()), []);
    }

    /// Each rule, by the mistake that it is for: the line and how often it comes before, what is there instead, and what the lint says.
    #[test]
    fn every_rule_sees_its_mistake() {
        for (line, nth, instead, word) in [
            ("fence.mbarrier_init.release.cluster;", 0, "", "`mbarrier.init` and the barrier"),
            ("fence.proxy.async.global;", 0, "", "before the loads of each task"),
            ("fence.proxy.async.global;", 1, "", "the task's body and its end"),
            ("fence.proxy.async.global;", 2, "", "its completion and the signal"),
            ("fence.proxy.async.shared::cta;", 0, "", "`stmatrix` wrote"),
            ("fence.proxy.async.shared::cta; // of sums", 0, "", "next bytes"),
            ("fence.proxy.async.shared::cta; // of transposed operands", 0, "", "what was transposed"),
            ("bar.sync 5, 256; // of transposed operands", 0, "", "other warps"),
            ("fence.mbarrier_init.release.cluster; // of a body", 0, "", "`mbarrier.init` and the barrier"),
            ("fence.proxy.async.global; // of a load", 0, "", "before the loads"),
            ("fence.proxy.async.shared::cta; // of copies", 0, "", "`sync_copies`"),
            ("cp.async.bulk.commit_group; // of a body", 0, "", "a body's copy that is not committed"),
            ("cp.async.bulk.wait_group 0; // of a body", 0, "cp.async.bulk.wait_group.read 0;", "when the task ends"),
            ("fence.proxy.async.global; // of a store", 0, "", "what a body's copy wrote"),
            ("mbarrier.inval.shared::cta.b64 [%r40];", 0, "", "still is one"),
            ("fence.proxy.async.shared::cta; // of a body", 0, "", "bytes of a body's pages"),
            (
                "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r40];",
                0,
                "mbarrier.arrive.release.gpu.shared::cta.b64 _, [%r40];",
                "among the threads",
            ),
            ("fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128;", 0, "", "tensor map"),
            ("fence.proxy.tensormap::generic.acquire.gpu [%rd5], 128;", 0, "", "tensor map"),
            ("cp.async.bulk.commit_group;", 0, "", "not committed"),
            ("cp.async.bulk.wait_group 0;", 0, "cp.async.bulk.wait_group.read 0;", "may not have arrived"),
            ("fence.release.gpu;", 0, "", "may overtake"),
            ("fence.release.gpu;", 0, "fence.release.sys;", "may overtake"),
            ("fence.acquire.gpu;", 0, "", "may not be visible"),
            ("fence.acquire.gpu;", 0, "fence.acquire.cta;", "may not be visible"),
            ("fence.acquire.gpu; // of names", 0, "", "may not be visible"),
            ("fence.acquire.gpu; // of a gate", 0, "", "may not be visible"),
            ("bar.warp.sync -1;", 0, "", "the warp meets"),
            ("bar.sync 5, 256;", 0, "", "its threads meet"),
            ("fence.release.gpu; // of a part", 0, "", "may overtake its part"),
            ("fence.acquire.gpu; // of parts", 0, "", "other parts may not be visible"),
            ("fence.sc.cta;", 0, "", "its looks at counters"),
            ("fence.sc.cta; // of a stop", 0, "", "closing its gates"),
            ("ld.relaxed.gpu.global.u32 %r19, [%rd6];", 0, "ld.relaxed.sys.global.u32 %r19, [%rd6];", "one GPU"),
            ("ld.relaxed.gpu.global.u32 %r19, [%rd6];", 0, "ld.relaxed.gpu.u32 %r19, [%rd6];", "says `.global`"),
            ("ld.relaxed.gpu.global.u32 %r19, [%rd6];", 0, "ld.relaxed.sys.u32 %r19, [%rd6];", "nobody loads"),
            ("mov.b32 %r18, 0;", 0, "ld.relaxed.gpu.shared.u32 %r18, [%r1];", "one CTA's"),
            ("mov.b32 %r18, 0;", 0, "mov.b32 %r18, 7;", "may overtake"),
            (
                "mbarrier.arrive.shared::cta.b64 _, [%r13];",
                0,
                "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r13];",
                "among the threads",
            ),
            ("st.release.sys.u32 [%rd13], %r28;", 1, "", "a part of a report"),
            ("st.release.sys.u32 [%rd13], %r28;", 0, "st.release.gpu.u32 [%rd13], %r28;", "a part of a report"),
            ("st.relaxed.sys.u32 [%rd14], %r27;", 0, "", "a word of this report"),
        ] {
            let (at, _) = ENTRY.match_indices(&format!("\n{line}\n")).nth(nth).unwrap_or_else(|| panic!("no `{line}`"));
            let broken = format!("{}\n{instead}{}", &ENTRY[..at], &ENTRY[at + 1 + line.len()..]);
            let found = lint(&broken);
            assert!(found.iter().any(|text| text.contains(word)), "`{line}`: {found:?}");
        }
    }
}

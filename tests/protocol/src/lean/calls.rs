//! Calls of collectives: what ranks have, and what each of them must get.

use maco_abi::{LeanCall, LeanElement, LeanOperation, LeanRanks, LeanReduction, LeanTensor, lean_code};
use maco_device::lean::{Form, run_all, run_all_as};

use super::{Machine, Thread};

/// A call that all ranks make.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Which.
    pub operation: LeanOperation,
    /// Elements of a part, of four bytes.
    pub count: u32,
    /// Who broadcasts.
    pub root: u32,
    /// If it is not that of its size.
    pub form: Option<Form>,
    /// Elements by which tensors are beside a boundary of 16 bytes.
    pub skew: usize,
}

impl Call {
    /// One whose form is that of its size.
    pub const fn new(operation: LeanOperation, count: u32) -> Call {
        Call { operation, count, root: 0, form: None, skew: 0 }
    }

    /// One in another form.
    pub const fn by(self, packets: bool, two_steps: bool) -> Call {
        Call { form: Some(Form { packets, two_steps }), ..self }
    }

    /// One by another root.
    pub const fn from(self, root: u32) -> Call {
        Call { root, ..self }
    }

    /// Words of the larger tensor.
    pub fn words(&self, ranks: u32) -> usize {
        (self.count * ranks) as usize + self.skew
    }

    /// Elements that a rank has, and that it gets.
    fn elements(&self, ranks: u32) -> [usize; 2] {
        let all = [1, ranks].map(|parts| (self.count * parts) as usize);
        match self.operation {
            LeanOperation::AllReduce | LeanOperation::Broadcast => [all[0]; 2],
            LeanOperation::AllGather => all,
            LeanOperation::ReduceScatter => [all[1], all[0]],
            LeanOperation::AllToAll => [all[1]; 2],
        }
    }

    /// Both tensors are one.
    fn in_place(&self) -> bool {
        matches!(self.operation, LeanOperation::AllReduce | LeanOperation::Broadcast)
    }

    /// Element `n` of what `rank` must get in call `number`.
    fn expected(&self, number: u32, ranks: u32, rank: u32, n: u32) -> u32 {
        let (count, sum) = (self.count, |n: u32| (0..ranks).map(|from| element(number, from, n)).sum());
        match self.operation {
            LeanOperation::AllReduce => sum(n),
            LeanOperation::ReduceScatter => sum(rank * count + n),
            LeanOperation::Broadcast => element(number, self.root, n),
            LeanOperation::AllGather => element(number, n / count, n % count),
            LeanOperation::AllToAll => element(number, n / count, rank * count + n % count),
        }
    }
}

/// What a rank has.
fn element(number: u32, rank: u32, n: u32) -> u32 {
    (number + 1) << 20 | (rank + 1) << 17 | n & 0xffff
}

impl<M: Machine> Thread<M> {
    /// Makes all calls, one after another, as kernels of one stream.
    pub(super) fn make(&self, calls: &[Call]) {
        for (number, call) in (0..).zip(calls) {
            let table = self.table(call);
            if self.lane == 0 {
                self.fill(number, call);
            }
            self.gather();
            let form = call.form.unwrap_or_else(|| Form::of(&table));
            let [begin, end] = table.part(0, 4);
            self.packets.set(form.packets);
            self.blocks.set(if form.packets { (end - begin).div_ceil(4) as u32 } else { 0 });
            // SAFETY: as the model has them.
            let made = unsafe { if call.form.is_some() { run_all_as(self, &table, form) } else { run_all(self, &table) } };
            assert!(made.is_ok(), "ranks do not go on");
            self.gather();
            if self.lane == 0 {
                self.check(number, call);
            }
        }
    }

    fn table(&self, call: &Call) -> LeanCall {
        let (world, setting) = (&self.world, &self.world.setting);
        let steps = world.steps[(self.rank * setting.executors) as usize].get() as u64;
        let ranks = LeanRanks { bases: world.bases.as_ptr() as u64, steps, rank: self.rank, ..setting.table() };
        let tensor = |second| LeanTensor { address: world.tensor(self.rank, second, call.skew) as u64, columns: 1, stride: 0 };
        LeanCall {
            ranks,
            input: tensor(false),
            output: tensor(!call.in_place()),
            count: call.count.into(),
            deadline_ns: 0,
            code: lean_code(call.operation, LeanReduction::Sum, LeanElement::I32),
            root: call.root,
        }
    }

    fn fill(&self, number: u32, call: &Call) {
        let [has, gets] = call.elements(self.world.setting.ranks);
        // SAFETY: (of both) words of this rank's tensors, which its other lanes do not use now.
        (0..gets).for_each(|n| unsafe { self.world.tensor(self.rank, true, call.skew + n).write(u32::MAX) });
        // SAFETY: as above.
        (0..has).for_each(|n| unsafe { self.world.tensor(self.rank, false, call.skew + n).write(element(number, self.rank, n as u32)) });
    }

    fn check(&self, number: u32, call: &Call) {
        let ranks = self.world.setting.ranks;
        let [_, gets] = call.elements(ranks);
        for n in 0..gets {
            // SAFETY: as of `fill`.
            let found = unsafe { self.world.tensor(self.rank, !call.in_place(), call.skew + n).read() };
            let expected = call.expected(number, ranks, self.rank, n as u32);
            assert_eq!(found, expected, "element {n} of rank {} in call {number}, {call:?}", self.rank);
        }
    }
}

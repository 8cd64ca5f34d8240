//! What is known of each instance at compile time, so that instances which do the same share its code.

use crate::data::element::{MmaElement, MmaFormat};
use crate::data::epilogue::Epilogue;
use crate::data::tile_shape::TileShape;
use crate::role::Sharing;

/// Instances of one callable that have a number here; those behind them share nothing.
pub const INSTANCES: usize = u128::BITS as usize;

/// A body that goes by the size of its tile nowhere, so that one code may be for several: with rows and columns of the tile.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// A GEMM with one sum, which is what it ends with.
    Gemm(u32, u32),
    /// A GEMV.
    Gemv(u32, u32),
    /// A body that is a function of its own.
    Function,
    /// Anything else.
    Other,
}

/// One instance.
#[derive(Clone, Copy)]
pub struct Instance {
    /// The number of its body: the same body of the same elements. 0: nothing is known.
    body: u64,
    /// Rows and columns of its tile, if its body goes by them nowhere, and what it then is.
    form: Form,
    /// The element of its result, as of [`ResultCode`](crate::data::epilogue::ResultCode): 1 `bf16`, 2 `f16`, 3 `f32`.
    result: u8,
    /// What its epilogue is: 0 nothing, otherwise one more than the place of its call.
    epilogue: u32,
    /// The same of its elementwise prologue of operand A.
    prologue: u32,
}

impl Instance {
    /// An instance of which nothing is known.
    pub const NONE: Instance = Instance { body: 0, form: Form::Other, result: 0, epilogue: 0, prologue: 0 };

    /// One whose body is for its own tile. `body` is the same of two whose code is.
    pub const fn of(body: u64) -> Instance {
        Instance { body, ..Instance::NONE }
    }

    /// A GEMM with one sum of `rows` × `columns`, whose signature says that its result is of `E`. `body` is the same of two that differ in rows and
    /// columns alone.
    pub const fn gemm<E: MmaElement>(body: u64, rows: u32, columns: u32) -> Instance {
        Instance { body, form: Form::Gemm(rows, columns), result: result::<E>(), ..Instance::NONE }
    }

    /// A body without tensor cores, which is a function of its own.
    pub const fn function(body: u64) -> Instance {
        Instance { body, form: Form::Function, ..Instance::NONE }
    }

    /// A GEMV of `rows` rows of operand A and `columns` rows of operand B, otherwise as [`Instance::gemm`].
    pub const fn gemv<E: MmaElement>(body: u64, rows: u32, columns: u32) -> Instance {
        Instance { body, form: Form::Gemv(rows, columns), result: result::<E>(), ..Instance::NONE }
    }

    /// See [`Form`].
    pub(crate) const fn form(self) -> Form {
        self.form
    }

    /// Whether elements of the result have four bytes.
    pub(crate) const fn has_four_bytes(self) -> bool {
        self.result == 3
    }

    /// Whether a role that shares code as `sharing` says has one code for both.
    pub(crate) const fn shares(self, other: Instance, sharing: Sharing) -> bool {
        if self.body == 0 || self.body != other.body {
            return false;
        }
        match (sharing, self.form, other.form) {
            (Sharing::None, ..) => false,
            (Sharing::Bodies, Form::Gemm(..), Form::Gemm(..)) | (Sharing::Bodies, Form::Gemv(..), Form::Gemv(..)) => true,
            // Nobody tells the one code which elements the result has, and how many chunks hold them.
            (Sharing::Bodies, ..) => self.result == other.result,
            (Sharing::Loops, Form::Gemm(rows, columns), Form::Gemm(others_rows, others_columns)) => {
                let registers = TileShape::of(rows, columns).own_columns();
                registers == TileShape::of(others_rows, others_columns).own_columns() && self.prologue == other.prologue
            }
            (Sharing::Gemvs, Form::Gemv(..), Form::Gemv(..)) => self.ends_as(other),
            (Sharing::Loops | Sharing::Gemvs, ..) => false,
        }
    }

    /// Whether both end alike, but for their tiles.
    pub(crate) const fn ends_as(self, other: Instance) -> bool {
        self.epilogue == other.epilogue && self.result == other.result
    }
}

const fn result<E: MmaElement>() -> u8 {
    match E::MMA_FORMAT {
        MmaFormat::Bf16 => 1,
        MmaFormat::F16 => 2,
        MmaFormat::Tf32 => 3,
    }
}

/// Those of a callable, by their numbers.
#[derive(Clone, Copy)]
pub struct Instances(pub(crate) [Instance; INSTANCES]);

impl Instances {
    /// Nothing is known.
    pub const NONE: Instances = Instances([Instance::NONE; INSTANCES]);

    /// Those of a task.
    pub const fn new(list: &[Instance]) -> Instances {
        let mut all = Instances::NONE;
        let mut n = 0;
        while n < list.len() && n < INSTANCES {
            all.0[n] = list[n];
            n += 1;
        }
        all
    }

    /// With `count` of another callable's, called with the epilogue `T`, from number `first` on.
    pub const fn with<T: Epilogue>(mut self, other: &Instances, first: u32, count: u32) -> Instances {
        let mut n = 0;
        while n < count as usize && n < INSTANCES && first as usize + n < INSTANCES {
            let mut one = other.0[n];
            if T::RESULT != 0 {
                one.result = T::RESULT;
            }
            // What a called graph has fused itself is known by the place of its own call, which moves with it.
            one.epilogue = match one.epilogue {
                0 if T::PLAIN => 0,
                0 => first + 1,
                own => first + own,
            };
            one.prologue = match one.prologue {
                0 if !T::MAPS_OPERAND_A => 0,
                0 => first + 1,
                own => first + own,
            };
            self.0[first as usize + n] = one;
            n += 1;
        }
        self
    }
}

/// The number of a body by its path and elements, and by the hash of its text (FNV-1a, of 64 bits); not 0.
pub const fn body_id(path: &str, text: u64) -> u64 {
    let bytes = path.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ text;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash | 1
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use crate::data::element::{bf16, f16};
    use crate::data::epilogue::{Each, Elementwise, Identity, ResultCode, Rounded};

    enum Gelu {}

    impl Elementwise for Gelu {
        fn apply(value: f32) -> f32 {
            value
        }
    }

    /// Two calls of one task share what does not go by the epilogue.
    #[test]
    fn instances_share_what_is_the_same() {
        let (linear, matmul) = (body_id("tasks::linear bf16", 0), body_id("tasks::matmul bf16", 0));
        assert_ne!(linear, matmul);
        let shapes = [(64, 128), (64, 256), (128, 128), (128, 256)];
        let task = Instances::new(&shapes.map(|(rows, columns)| Instance::gemm::<bf16>(linear, rows, columns)));
        let all = Instances::NONE
            .with::<Each<Gelu>>(&task, 0, 4)
            .with::<Identity>(&task, 4, 4)
            .with::<Rounded<Identity, ResultCode<3>>>(&task, 8, 4);
        let shares = |a: usize, b: usize, sharing| all.0[a].shares(all.0[b], sharing);
        for (n, m) in (0..12).flat_map(|n| (0..12).map(move |m| (n, m))) {
            assert!(shares(n, m, Sharing::Bodies) && !shares(n, m, Sharing::None));
            // 64 × 256 and 128 × 128 have the same registers.
            let registers = |n: usize| [64, 128, 128, 256][n % 4];
            assert_eq!(shares(n, m, Sharing::Loops), registers(n) == registers(m));
            assert_eq!(all.0[n].ends_as(all.0[m]), n / 4 == m / 4);
        }
        assert!(!shares(0, 12, Sharing::Bodies) && all.0[8].has_four_bytes() && !all.0[0].has_four_bytes());
        assert!(!Instance::gemm::<f16>(matmul, 64, 128).shares(all.0[0], Sharing::Bodies));
    }

    /// What is no GEMM with one sum is stored by one code only if its results have the same elements.
    #[test]
    fn other_bodies_store_their_own_elements() {
        let pair = Instances::new(&[Instance::of(body_id("tasks::gated_linear bf16", 0))]);
        let all = Instances::NONE
            .with::<Rounded<Identity, ResultCode<3>>>(&pair, 0, 1)
            .with::<Rounded<Identity, ResultCode<2>>>(&pair, 1, 1)
            .with::<Rounded<Identity, ResultCode<3>>>(&pair, 2, 1);
        assert!(!all.0[0].shares(all.0[1], Sharing::Bodies) && all.0[0].shares(all.0[2], Sharing::Bodies));
    }

    /// A graph that is called twice has the epilogues of its own calls twice, and they are not taken for others.
    #[test]
    fn a_graph_keeps_its_own_epilogues() {
        let body = body_id("tasks::linear bf16", 0);
        let task = Instances::new(&[Instance::gemm::<bf16>(body, 64, 128)]);
        let graph = Instances::NONE.with::<Each<Gelu>>(&task, 0, 1).with::<Identity>(&task, 1, 1);
        let all = Instances::NONE.with::<Identity>(&graph, 0, 2).with::<Identity>(&graph, 2, 2);
        assert!(all.0[1].ends_as(all.0[3]) && !all.0[0].ends_as(all.0[2]) && !all.0[0].ends_as(all.0[1]));
    }
}

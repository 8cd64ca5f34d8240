//! Which tiles and parts of a GEMM are worth a measurement, and what a tuning file says about the fastest. How they are measured does not belong here.

use clap::ValueEnum;
use maco::{CallShape, Device, Plan, PlanOptions, Tuned, bf16, f16};
use maco_graph::plan::PlannedCall;

use crate::shapes::Shape;
use crate::{forms, kernels};

/// How the operands are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// x\[M, K\] · w\[N, K\]ᵀ
    Linear,
    /// a\[M, K\] · b\[K, N\]
    Matmul,
    /// a\[K, M\]ᵀ · b\[K, N\]
    MatmulTn,
    /// a\[K, M\]ᵀ · b\[N, K\]ᵀ
    MatmulTt,
}

impl Form {
    /// The task's name.
    pub fn task(self) -> &'static str {
        match self {
            Form::Linear => "linear",
            Form::Matmul => "matmul",
            Form::MatmulTn => "matmul_tn",
            Form::MatmulTt => "matmul_tt",
        }
    }

    /// Extents of both operands and of the result.
    pub fn extents(self, (m, n, k): Shape) -> [[u64; 2]; 3] {
        let (rows, turned) = match self {
            Form::Linear => ([m, k], [n, k]),
            Form::Matmul => ([m, k], [k, n]),
            Form::MatmulTn => ([k, m], [k, n]),
            Form::MatmulTt => ([k, m], [n, k]),
        };
        [rows, turned, [m, n]]
    }

    /// Whether it has the tiles of the GEMV form.
    fn has_gemv_form(self) -> bool {
        self == Form::Linear
    }
}

/// What operands and result hold.
pub trait Half: maco::TensorElement + Into<f64> {
    /// As a tuning file has it.
    const NAME: &'static str;
    /// Rounds.
    fn rounded(value: f32) -> Self;
    /// A plan of one GEMM.
    fn plan(device: &Device, form: Form, shape: Shape, options: &PlanOptions) -> anyhow::Result<Plan>;
}

macro_rules! halves {
    ($($ty:ident: $linear:path, $matmul:path, $tn:path, $tt:path;)*) => {$(
        impl Half for $ty {
            const NAME: &'static str = stringify!($ty);
            fn rounded(value: f32) -> Self {
                $ty::from_f32(value)
            }
            fn plan(device: &Device, form: Form, (m, n, k): Shape, options: &PlanOptions) -> anyhow::Result<Plan> {
                macro_rules! plan {
                    ($kernel:path) => {{
                        use $kernel as kernel;
                        (*kernel::plan_with(device, kernel::Dims { M: m, N: n, K: k }, options)?).clone()
                    }};
                }
                Ok(match form {
                    Form::Linear => plan!($linear),
                    Form::Matmul => plan!($matmul),
                    Form::MatmulTn => plan!($tn),
                    Form::MatmulTt => plan!($tt),
                })
            }
        }
    )*};
}
halves! {
    bf16: kernels::gemm, forms::matmul_bf16, forms::matmul_tn_bf16, forms::matmul_tt_bf16;
    f16: forms::linear_f16, forms::matmul_f16, forms::matmul_tn_f16, forms::matmul_tt_f16;
}

/// Largest M with candidates of the GEMV form: above, operand B would be read more than once.
pub const MAX_GEMV_ROWS: u64 = 16;
/// The tiles of GEMMs, and the numbers of parts that are tried.
pub const TILES: [[u32; 2]; 4] = [[64, 128], [64, 256], [128, 128], [128, 256]];
/// See [`TILES`].
pub const PARTS: [u32; 8] = [1, 2, 3, 4, 5, 6, 8, 12];
/// Tiles of the GEMV form, which has no split-K.
pub const GEMV_TILES: [[u32; 2]; 4] = [[8, 8], [8, 16], [16, 8], [16, 16]];
/// All tiles in parts are left out where those are more tasks than this for each worker.
pub const WAVES: u64 = 4;
/// Elements of a step of K: a part has one at least.
const STEP: u64 = 64;

/// Every tile whole, in several numbers of parts, and with only the last wave's tiles in parts.
pub fn candidates(form: Form, (m, n, k): Shape, workers: u32) -> Vec<CallShape> {
    let one = |tile: [u32; 2], parts, whole| CallShape { call: 0, tile: Some(tile.to_vec()), split: Some(parts), whole };
    let gemv = GEMV_TILES.into_iter().filter(|_| form.has_gemv_form() && m <= MAX_GEMV_ROWS).map(|tile| one(tile, 1, 0));
    let mut all: Vec<CallShape> = gemv.collect();
    for tile in TILES {
        let tiles = m.div_ceil(tile[0].into()) * n.div_ceil(tile[1].into());
        // What full waves have, if that is not all.
        let full = tiles - tiles % u64::from(workers);
        let tail = u32::try_from(full).ok().filter(|&whole| whole > 0 && full < tiles);
        for parts in PARTS.into_iter().filter(|&parts| u64::from(parts) <= k.div_ceil(STEP)) {
            if parts == 1 || tiles * u64::from(parts) <= WAVES * u64::from(workers) {
                all.push(one(tile, parts, 0));
            }
            all.extend(tail.filter(|_| parts > 1).map(|whole| one(tile, parts, whole)));
        }
    }
    all
}

/// What a tuning file says: `call`, which took so many microseconds, is the fastest.
pub fn tuned<E: Half>(form: Form, shape: Shape, workers: u32, call: &PlannedCall, microseconds: f64) -> Tuned {
    Tuned {
        task: form.task().into(),
        element: E::NAME.into(),
        shapes: form.extents(shape).map(Vec::from).to_vec(),
        workers,
        tile: call.tile.clone(),
        parts: call.parts,
        whole: call.whole,
        nanoseconds: (microseconds * 1e3) as u64,
    }
}

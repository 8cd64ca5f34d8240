//! Decoded instructions.

/// Where a value lies: a byte offset in a warp's frame, or with [`CONSTANT`] in the program's constants. 16- and 32-bit values have 32
/// words, 64-bit values 32 double words, predicates one word with a bit for each lane.
pub type Slot = u32;
pub const CONSTANT: Slot = 1 << 31;
/// No operand.
pub const NONE: Slot = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Ty { B8, B16, B32, B64, B128, U8, U16, U32, U64, S8, S16, S32, S64, F16, Bf16, F32, F64, F16x2, Bf16x2, Tf32, E4m3, E5m2, E4m3x2, E5m2x2, Pred }

impl Ty {
    pub fn of(name: &str) -> Option<Ty> {
        use Ty::*;
        Some(match name {
            "b8" => B8,
            "b16" => B16,
            "b32" => B32,
            "b64" => B64,
            "b128" => B128,
            "u8" => U8,
            "u16" => U16,
            "u32" => U32,
            "u64" => U64,
            "s8" => S8,
            "s16" => S16,
            "s32" => S32,
            "s64" => S64,
            "f16" => F16,
            "bf16" => Bf16,
            "f32" => F32,
            "f64" => F64,
            "f16x2" => F16x2,
            "bf16x2" => Bf16x2,
            "tf32" => Tf32,
            "e4m3" => E4m3,
            "e5m2" => E5m2,
            "e4m3x2" => E4m3x2,
            "e5m2x2" => E5m2x2,
            "pred" => Pred,
            _ => return None,
        })
    }

    pub fn bytes(self) -> u32 {
        use Ty::*;
        match self {
            B8 | U8 | S8 | E4m3 | E5m2 => 1,
            B16 | U16 | S16 | F16 | Bf16 | E4m3x2 | E5m2x2 => 2,
            B64 | U64 | S64 | F64 => 8,
            B128 => 16,
            _ => 4,
        }
    }

    pub fn signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    pub fn float(self) -> bool {
        matches!(self, Ty::F16 | Ty::Bf16 | Ty::F32 | Ty::F64 | Ty::Tf32)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Param,
    Const,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub enum Op {
    Nop, Mov, Special, Pack, Unpack,
    Add, Sub, MulLo, MulHi, MulWide, MadLo, MadHi, MadWide, Div, Rem, Min, Max, Neg, Abs, And, Or, Xor, Not, Shl, Shr, ShfL, ShfR, Bfe, Bfi, Popc, Clz,
    Brev, Bfind, Prmt, Lop3, Selp, Setp, Set, Cvt, CvtPair, Fma, Rcp, Sqrt, Rsqrt, Ex2, Lg2, Sin, Cos, Tanh, Copysign, Dp4a,
    Ld, St, Atom, LdParam, StParam, CopyParam, LdEntry, ToGeneric, FromGeneric, IsSpace, Mapa,
    Bra, Brx, Call, Ret, Exit, Trap,
    Bar, BarWarp, Vote, Shfl, Match, Redux, Elect, ActiveMask,
    MbarInit, MbarInval, MbarArrive, MbarExpect, MbarComplete, MbarWait, MbarPending,
    BulkLoad, BulkStore, TensorLoad, TensorStore, BulkCommit, BulkWait,
    Wgmma, WgmmaFence, WgmmaCommit, WgmmaWait, LdMatrix, StMatrix, Mma,
    Sleep, ClusterArrive, ClusterWait, CpAsync, CpAsyncCommit, CpAsyncWait, StAsync, BulkShared, ProxyFence, Fence,
}

/// Comparison of `setp`; the floating ones without `U` are false where an operand is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[rustfmt::skip]
#[repr(u8)]
pub enum Cmp { Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan }

impl Cmp {
    pub const ALL: [(&'static str, Cmp); 18] = [
        ("eq", Cmp::Eq),
        ("ne", Cmp::Ne),
        ("lt", Cmp::Lt),
        ("le", Cmp::Le),
        ("gt", Cmp::Gt),
        ("ge", Cmp::Ge),
        ("lo", Cmp::Lt),
        ("ls", Cmp::Le),
        ("hi", Cmp::Gt),
        ("hs", Cmp::Ge),
        ("equ", Cmp::Equ),
        ("neu", Cmp::Neu),
        ("ltu", Cmp::Ltu),
        ("leu", Cmp::Leu),
        ("gtu", Cmp::Gtu),
        ("geu", Cmp::Geu),
        ("num", Cmp::Num),
        ("nan", Cmp::Nan),
    ];

    pub fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        let ordered = a.partial_cmp(&b).is_some();
        match self {
            Cmp::Eq => a == b,
            Cmp::Ne => ordered && a != b,
            Cmp::Lt => a < b,
            Cmp::Le => a <= b,
            Cmp::Gt => a > b,
            Cmp::Ge => a >= b,
            Cmp::Equ => !ordered || a == b,
            Cmp::Neu => a != b,
            Cmp::Ltu => !ordered || a < b,
            Cmp::Leu => !ordered || a <= b,
            Cmp::Gtu => !ordered || a > b,
            Cmp::Geu => !ordered || a >= b,
            Cmp::Num => ordered,
            Cmp::Nan => !ordered,
        }
    }
}

/// How a conversion rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Round {
    None,
    Nearest,
    Zero,
    Down,
    Up,
    Away,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[rustfmt::skip]
pub enum Special {
    TidX, TidY, TidZ, NtidX, NtidY, NtidZ, CtaidX, CtaidY, CtaidZ, NctaidX, NctaidY, NctaidZ, Lane, Warp, Nwarp, Sm, Nsm, Grid, Clock, ClockHi, Clock64,
    Timer, TimerLo, TimerHi, MaskEq, MaskLt, MaskLe, MaskGt, MaskGe, DynamicShared, TotalShared,
    ClusterX, ClusterRank, ClusterSize, ClusterId, Clusters, Zero,
}

/// `flag` of various instructions.
pub const F_NAN: u8 = 2;
pub const F_FTZ: u8 = 4;
pub const F_SAT: u8 = 8;
pub const F_RELU: u8 = 16;
/// `flag` of accesses of memory and of fences: no weak access, and what it orders by itself.
pub const F_RELAXED: u8 = 1;
pub const F_ACQUIRES: u8 = 2;
pub const F_RELEASES: u8 = 4;
/// For all devices and the host; others are for the device or less.
pub const F_SYSTEM: u8 = 8;

#[derive(Clone, Copy, Debug)]
pub struct Inst {
    pub op: Op,
    pub ty: Ty,
    pub ty2: Ty,
    /// Registers of a vector, and other small numbers.
    pub n: u8,
    pub space: Space,
    pub flag: u8,
    /// Bytes of the destination's and of the first source's register.
    pub dw: u8,
    pub aw: u8,
    pub guard: Slot,
    pub guard_not: bool,
    pub d: Slot,
    pub a: Slot,
    pub b: Slot,
    pub c: Slot,
    /// An offset, a target, or the index of a list.
    pub x: i32,
    pub line: u32,
}

/// Operands of one `wgmma`.
#[derive(Clone, Debug)]
pub struct Product {
    pub n: u32,
    pub a_ty: Ty,
    pub b_ty: Ty,
    pub sum: Ty,
    /// Accumulators.
    pub d: Box<[Slot]>,
    /// Registers of the first operand; none where it is described by `a`.
    pub a_registers: Box<[Slot]>,
    pub a: Slot,
    pub b: Slot,
    pub scale: Slot,
    pub negate: (bool, bool),
    pub across: (bool, bool),
}

#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub start: u32,
    pub end: u32,
}

/// An entry with all that it calls.
#[derive(Debug, Default)]
pub struct Program {
    pub name: String,
    pub code: Vec<Inst>,
    pub entry: u32,
    /// Lane-wide constants, in words of 64 bits so that they are aligned.
    pub constants: Vec<u64>,
    pub lists: Vec<Box<[Slot]>>,
    pub products: Vec<Product>,
    pub functions: Vec<Function>,
    /// Bytes of a warp's registers.
    pub frame: u32,
    /// Bytes of local memory of a thread.
    pub local: u32,
    /// Bytes of shared memory that the module declares.
    pub shared: u32,
    pub parameters: u32,
    /// Offset and size of each parameter.
    pub parameter_list: Vec<(u32, u32)>,
    pub max_threads: u32,
    pub cluster: [u32; 3],
}

impl Program {
    /// Name of the function that an instruction belongs to.
    pub fn function_of(&self, pc: u32) -> &str {
        self.functions.iter().find(|f| (f.start..f.end).contains(&pc)).map_or("?", |f| &f.name)
    }
}

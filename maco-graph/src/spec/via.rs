//! How the tiles of a collective go to the other ranks.

/// How the tiles of an all-reduce go: `all_reduce(part, y).via(TwoShot)`; of other collectives, whether NCCL does them. All ways but NCCL have the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// The plan chooses.
    #[default]
    Automatic,
    /// In one step, each word of data with its flag: twice the bytes, and nobody waits for a signal. Tiles of less than 16 KiB.
    Packets,
    /// In one step, as data with a signal: each rank sends its tile to all, and adds up those of all. Tiles of 16 KiB and more.
    OneShot,
    /// In two steps: each rank sends its tile to the one that owns it, which adds up those of all and sends the result. Tiles of 16 KiB and more.
    TwoShot,
    /// By NCCL beside the kernel, in chunks of rows: each as soon as it is there, while others are still made. Sums are those of NCCL's order, and have other bits. On CPU
    /// ranks, and on one rank, the plan chooses.
    Nccl,
}

impl Via {
    /// All that can be asked for.
    pub const ALL: [Via; 4] = [Via::Packets, Via::OneShot, Via::TwoShot, Via::Nccl];

    /// Its name in the source.
    pub const fn name(self) -> &'static str {
        match self {
            Via::Automatic => "Automatic",
            Via::Packets => "Packets",
            Via::OneShot => "OneShot",
            Via::TwoShot => "TwoShot",
            Via::Nccl => "Nccl",
        }
    }
}

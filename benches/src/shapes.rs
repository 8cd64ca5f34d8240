//! Sizes of the measured GEMMs.

/// M, N, K.
pub type Shape = (u64, u64, u64);

/// `256x8192x4096`: rows, columns and depth.
pub fn parse(text: &str) -> Result<Shape, String> {
    let numbers: Result<Vec<u64>, _> = text.split('x').map(str::parse).collect();
    match numbers.as_deref() {
        Ok(&[m, n, k]) if m * n * k > 0 => Ok((m, n, k)),
        _ => Err("expected rows, columns and depth such as `256x8192x4096`".into()),
    }
}

/// As a case's name.
pub fn name((m, n, k): Shape) -> String {
    format!("M{m} N{n} K{k}")
}

/// Those that are published.
pub const SHAPES: [Shape; 17] = [
    // Squares and transformer shapes that the first measurements of MACO used.
    (8192, 8192, 8192),
    (16384, 4096, 8192),
    (4096, 4096, 4096),
    (4096, 12288, 4096),
    (8192, 28672, 2048),
    (16, 6144, 4096),     // Llama-3-8B: queries, keys and values
    (16, 28672, 4096),    // Llama-3-8B: gate and up
    (32, 4096, 14336),    // Llama-3-8B: down
    (64, 10240, 8192),    // Llama-3-70B: queries, keys and values
    (128, 8192, 28672),   // Llama-3-70B: down
    (256, 18944, 3584),   // Qwen2.5-7B: up
    (512, 3584, 18944),   // Qwen2.5-7B: down
    (1024, 14336, 4096),  // Mixtral-8x7B: up of an expert
    (2048, 5120, 27648),  // Qwen2.5-32B: down
    (4096, 12288, 12288), // GPT-3 175B: output projection
    (8192, 10240, 8192),  // Llama-3-70B: queries, keys and values
    (16384, 14336, 4096), // Llama-3-8B: up
];

/// M up to which GEMMs are swept where nobody says which: above, there are more tiles than multiprocessors.
pub const SMALL: u64 = 1024;

use maco::prelude::*;

pub const LAYERS: usize = 4;
pub const HEADS: usize = 8;

/// y = x wᵀ
#[maco::task(tile(i = 64 | 128, j = 128 | 256), E in [bf16, f16])]
pub fn gemm(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, K>,
    #[read(j, ..)] w: Tensor<E, N, K>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

/// Grouped heads, rank 3.
#[maco::task(tile(h = 1, i = 64), E in [bf16, f16])]
pub fn heads(
    cta: &mut Cta,
    #[read(h, i, ..)] q: Tensor<E, H, S, D>,
    #[read(h / 4, i, ..)] k: Tensor<E, G, S, D>,
    #[write(h, i, ..)] o: Tensor<E, H, S, D>,
    by: f32,
) {
    cta.zip((q, k), o, |(q, k)| q * k * by)
}

/// Halo, fixed element.
#[maco::task(tile(i = 32, j = 64))]
pub fn stencil(cta: &mut Cta, #[read(i + -1..=1, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.generate(x, y, |x, i, j| x.at(i, j))
}

/// Data decides what is read, and what is written.
#[maco::task(tile(e = 1))]
pub fn ragged(
    cta: &mut Cta,
    #[read(e + 0..=1)] off: Tensor<u32, {N + 1}>,
    #[unsafe(update(off[e]..off[e + 1], ..))] y: Tensor<f32, M, K>,
    #[write(e)] done: Tensor<u32, N>,
) {
    let _ = y;
    cta.generate(off, done, |off, _, e| off.at(0, e));
}

fn reference(x: maco::ReadTile<f32, 64, 64>, y: maco::Tile<f32, 64, 64>, n: u32) {
    let _ = (x, y, n);
}

/// Raw.
///
/// # Safety
/// Stays inside its regions.
#[maco::task(simt, tile(i = 64, j = 64), cpu = reference)]
pub unsafe fn raw(simt: &mut Simt, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>, n: u32) {
    simt.no_such_method_on_the_host(x, y, n)
}

/// No grid at all.
#[maco::task]
pub fn once(cta: &mut Cta, #[update(..)] x: Tensor<i32, 4>) {
    cta.map(x, |v| v + 1)
}

/// 2 v
#[maco::task(elementwise)]
pub fn twice(v: f32) -> f32 {
    2.0 * v
}

#[maco::graph]
pub fn layer(x: In<bf16, M, K>, w: [In<bf16, K, K>; 2], by: f32, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, K>();
    gemm(x, w[0], h).then(gelu).then(twice);
    scale(h, by);
    linear(h, w[1], y).priority(1);
}

#[maco::megakernel(workers = 128, schedulers = 0)]
pub fn mlp(x: In<bf16, M, K>, up: [In<bf16, K, K>; LAYERS], down: In<bf16, K, K>, by: f32, y: Out<bf16, M, K>) {
    let mut h = temp::<bf16, M, K>();
    linear(x, up[0], h).then(gelu);
    for layer in 1..LAYERS {
        let next = temp::<bf16, M, K>();
        linear(h, up[layer], next).tile(64, 128).priority(-1).drain();
        scale(next, by);
        h = next;
    }
    let deep = temp::<bf16, M, K>();
    layer(h, [up[0], down], by, deep);
    let part = temp::<bf16, M, K>().partial(Sum);
    linear(deep, down, part);
    all_reduce(part, y);
}

#[maco::megakernel(where S == T)]
pub fn views(
    qkv: In<bf16, S, {(HEADS + 2) * D}>,
    #[shard(0)] cache: State<bf16, 2, T, D>,
    ids: InOut<i32, 4>,
    image: [In<f32, S, S>; 2],
    out: [Out<f32, S, S>; 2],
    by: f32,
    o: Out<bf16, {HEADS}, S, D>,
) {
    once(ids);
    let _ = cache;
    heads(
        qkv.slice(1, 0..HEADS * D).split(1, HEADS).swap(0, 1),
        qkv.slice(1, HEADS * D..).split(1, 2).swap(0, 1),
        o,
        -0.5,
    );
    stencil(image[0], out[0]);
    raw(image[1], out[1], S);
    for n in (0..2).rev() {
        if n == 1 {
            continue;
        }
        scale(out[n], by);
    }
}

fn main() {}

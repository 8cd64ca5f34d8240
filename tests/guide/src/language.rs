//! What docs/guide/language.md shows.
use maco::prelude::*;

/// y = a x + b, with the same b in every row.
#[maco::task(tile(i = 64, j = 64 | 128))]
pub fn affine(
    cta: &mut Cta,
    #[read(i, j)] x: Tensor<f32, M, N>,
    a: f32,
    #[read(j)] b: Tensor<f32, N>,
    #[write(i, j)] y: Tensor<f32, M, N>,
) {
    cta.zip((x, b), y, |(x, b)| a * x + b)
}

/// sum += x.
#[maco::task(tile(i = 64, j = 64))]
pub fn accumulate(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[update(i, j)] sum: Tensor<f32, M, N>) {
    cta.zip((x, sum), sum, |(x, sum)| x + sum)
}

/// v³, of each element; also in `.then(cube)` and `.first(cube)`.
#[maco::task(elementwise)]
pub fn cube(v: f32) -> f32 {
    v * v * v
}

/// Each element and those above and below it. A halo is zero outside of the tensor.
#[maco::task(tile(i = 32, j = 64))]
pub fn blur(cta: &mut Cta, #[read(i + -1..=1, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.generate(x, y, |x, r, c| x.at(r, c) + x.at(r + 1, c) + x.at(r + 2, c))
}

/// Row i of y is row `ids[i]` of the table.
#[maco::task(tile(i = 8))]
pub fn look_up(
    cta: &mut Cta,
    #[read(i)] ids: Tensor<u32, M>,
    #[read(ids[i], ..)] table: Tensor<f32, V, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
) {
    cta.take(ids, table, y)
}

/// Plane h of q, times the plane of k that four planes of q share.
#[maco::task(tile(h = 1, t = 8))]
pub fn grouped(
    cta: &mut Cta,
    #[read(h, t, ..)] q: Tensor<f32, H, T, D>,
    #[read(h / 4, t, ..)] k: Tensor<f32, { H / 4 }, T, D>,
    #[write(h, t, ..)] y: Tensor<f32, H, T, D>,
) {
    cta.zip((q, k), y, |(q, k)| q * k)
}

/// x · wᵀ.
#[maco::task(tile(i = 64 | 128, j = 128), E in [bf16, f16])]
pub fn gemm(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y)
}

/// Each row less its mean.
#[maco::helper(Rows)]
fn centred(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.rows(x, y, |x, y| {
        let mean = x.sum(|v| v) / x.len() as f32;
        y.zip(x, move |v| v - mean);
    })
}

/// Each row less its mean, and the squares of that.
#[maco::task(tile(i = 16))]
pub fn deviations(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<f32, M, N>,
    #[write(i, ..)] d: Tensor<f32, M, N>,
    #[write(i, ..)] squares: Tensor<f32, M, N>,
) {
    let d = centred(cta, x, d);
    cta.zip(d, squares, |v| v * v);
}

#[maco::megakernel]
pub fn sums(x: In<f32, M, N>, b: [In<f32, N>; 2], a: f32, sum: State<f32, M, N>, y: Out<f32, M, N>) {
    let h = temp::<f32, M, N>();
    affine(x, a, b[0], h);
    affine(h, 2.0, b[1], y);
    accumulate(y, sum);
}

const LAYERS: usize = 3;

#[maco::megakernel]
pub fn layers(x: In<f32, M, N>, b: [In<f32, N>; LAYERS], y: Out<f32, M, N>) {
    let mut h = x;
    for layer in 0..LAYERS {
        let next = if layer + 1 == LAYERS { y } else { temp::<f32, M, N>() };
        affine(h, 0.5, b[layer], next);
        h = next;
    }
}

#[maco::megakernel]
pub fn row_parallel(#[shard(1)] x: In<bf16, M, K>, #[shard(1)] w: In<bf16, N, K>, y: Out<bf16, M, N>) {
    let part = temp::<bf16, M, N>().partial(Sum);
    linear(x, w, part);
    all_reduce(part, y);
}

#[maco::megakernel]
pub fn views(x: In<f32, M, { 2 * H }>, swapped: Out<f32, M, { 2 * H }>, heads: Out<f32, 2, M, H>) {
    copy(x.slice(1, 0..H), swapped.slice(1, H..2 * H));
    copy(x.slice(1, H..2 * H), swapped.slice(1, 0..H));
    planes(x.split(1, 2).swap(0, 1), heads);
}

/// A copy, plane by plane.
#[maco::task(tile(p = 1, i = 16))]
pub fn planes(cta: &mut Cta, #[read(p, i, ..)] x: Tensor<f32, P, M, N>, #[write(p, i, ..)] y: Tensor<f32, P, M, N>) {
    cta.zip(x, y, |v| v)
}

#[maco::graph]
fn layer(x: In<bf16, M, K>, w: In<bf16, N, K>, b: In<bf16, N>, y: Out<bf16, M, N>) {
    linear(x, w, y).then(add(b)).then(gelu);
}

#[maco::megakernel]
pub fn mlp(x: In<bf16, M, K>, up: In<bf16, H, K>, b: In<bf16, H>, down: In<bf16, K, H>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>();
    layer(x, up, b, h);
    linear(h, down, y).tile(64, 128).split_k(2);
}

/// Plane r of y is this rank's plane of the `x` of rank r.
#[maco::task(tile(r = 1, i = 8 | 64, j = 256))]
pub fn exchange(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    let stored = cta.put(x); // in the slot of rank r's task for this rank
    let told = stored.signal(); // rank r may read it
    let come = told.wait(); // rank r's tile for this rank is here
    come.receive(y)
}

/// The same, by a proxy.
#[maco::task(tile(r = 1, i = 8 | 64, j = 256))]
pub fn by_proxy(cta: Cta<PortChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put_with_signal(x).wait().receive(y)
}

#[maco::megakernel]
pub fn exchanged(#[shard(0)] x: In<f32, R, M, N>, #[shard(0)] y: Out<f32, R, M, N>) {
    let come = temp::<f32, R, M, N>().shard(0);
    exchange(x, come);
    by_proxy(come, y); // back again
}

/// Each rank stores its plane for rank r in rank r's y.
#[maco::task(tile(r = 1, i = 8 | 64, j = 256))]
pub fn store(cta: Cta<SymmetricChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    let opened = cta.open(&y); // the other end may store this tile
    let granted = opened.signal().wait(); // and so may this one the other's
    let stored = granted.put(x); // straight into rank r's y
    stored.signal().wait().receive(y) // y is there
}

#[maco::megakernel]
pub fn stored(
    #[shard(0)] x: In<f32, R, M, N>,
    #[shard(0)]
    #[symmetric]
    y: Out<f32, R, M, N>,
) {
    let come = temp::<f32, R, M, N>().shard(0).symmetric();
    store(x, come);
    store(come, y); // back again
}

/// Calls of the tasks that are left: one of each.
#[maco::megakernel]
pub fn others(
    x: In<f32, M, N>,
    ids: In<u32, R>,
    q: In<f32, { 4 * G }, T, D>,
    k: In<f32, G, T, D>,
    a: In<bf16, M, K>,
    w: In<bf16, P, K>,
    blurred: Out<f32, M, N>,
    looked: Out<f32, R, N>,
    cubes: Out<f32, M, N>,
    shared: Out<f32, { 4 * G }, T, D>,
    multiplied: Out<bf16, M, P>,
    d: Out<f32, M, N>,
    squares: Out<f32, M, N>,
) {
    blur(x, blurred);
    look_up(ids, x, looked);
    cube(x, cubes);
    grouped(q, k, shared);
    gemm(a, w, multiplied);
    deviations(x, d, squares);
}

//! Tasks, graphs and megakernels that a `macro_rules!` writes: each kind of fragment where it may stand.
use maco::prelude::*;

macro_rules! tasks {
    (
        $(#[$meta:meta])* $vis:vis $name:ident, $half:ident, $element:ty, $tensor:ty, $cta:ty, $tile:literal, $body:block, $whole:block, $function:expr,
        $before:literal, $path:path, $tree:tt, $pattern:pat_param, ($c:ident, $x:ident, $y:ident)
    ) => {
        $(#[$meta])*
        #[maco::task(tile(i = $tile, j = $tile))]
        $vis fn $name(cta: $cta, #[read(i, j)] x: Tensor<$element, M, N>, #[write(i, j)] y: $tensor) {
            cta.zip(x, y, $function)
        }

        #[maco::task(tile(i = $tile, j = $tile), E in [$tree, f16])]
        fn $half($c: &mut Cta, #[read(i, j)] $x: Tensor<E, M, N>, #[write(i, j)] $y: Tensor<E, M, N>) $body

        #[maco::task(tile(i = $tile, j = 64))]
        fn halo(cta: $cta, #[read(i + $before..=1, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
            cta.generate(x, y, |x, i, j| x.at(i, j))
        }

        #[maco::task(tile(i = $tile, j = 64))]
        fn sum(cta: $cta, #[read(i, j)] x: $tensor, #[read(i, j)] r: $tensor, #[write(i, j)] y: $tensor) {
            cta.zip((x, r), y, |(v, r)| v + r)
        }

        #[maco::task(elementwise)]
        fn twice($pattern: $element) -> $element $whole

        #[maco::task(tile(i = 64 | 128, j = 128 | 256), few = $path, E in [bf16, f16])]
        fn gemm(
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
    };
}

tasks! {
    /// y = 2 x + 1.
    #[allow(unused)]
    pub shift, same, f32, Tensor<f32, M, N>, &mut Cta, 64, { cta.zip(x, y, |v| v) }, { 2.0 * v }, |v| v + 1.0, -1, maco::tasks::skinny_linear, bf16, v,
    (cta, x, y)
}

const SIZE: usize = 2;

macro_rules! kernels {
    (
        $vis:vis $name:ident, $element:ty, $input:ty, $array:ty, $size:expr, $range:expr, $cut:expr, $first:stmt; $call:expr, $call_path:path,
        $workers:literal, $layer:pat_param, ($h:ident, $y:ident, $at:ident)
    ) => {
        #[maco::graph]
        fn step(x: $input, $y: Out<$element, M, N>) {
            $first
            shift(x, $h);
            $call;
        }

        #[maco::megakernel(workers = $workers)]
        $vis fn $name(x: $input, many: $array, y: Out<$element, M, N>, z: Out<bf16, M, {$size * 2}>, w: In<bf16, M, {$size * 4}>) {
            let mut h = temp::<f32, M, N>();
            $call_path(x, h);
            for $layer in $range {
                let next = temp::<$element, M, N>();
                let first = temp::<$element, M, N>();
                step(h, first);
                sum(first, many[$at], next);
                h = next;
            }
            same(w.slice(1, $cut), z).tile($workers, $workers);
            $call_path(h, y);
        }
    };
}

kernels! {
    pub run, f32, In<f32, M, N>, [In<f32, M, N>; 2], SIZE + 2, 0..SIZE, 0..8, let h = temp::<f32, M, N>(); halo(h, y), shift, 64, layer,
    (h, y, layer)
}

fn main() {}

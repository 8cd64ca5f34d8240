//! What a SIMT body may only read it cannot write through its pointer.
use maco::{ReadTile, Tile};

fn written(x: ReadTile<f32, 1, 64>, _: Tile<f32, 1, 64>) {
    unsafe { x.pointer(0, 0).write(0.0) };
}

fn taken_for_writable(_: Tile<f32, 1, 64>, _: Tile<f32, 1, 64>) {}

#[maco::task(simt, tile(i = 64), cpu = written)]
pub unsafe fn copies(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {}

#[maco::task(simt, tile(i = 64), cpu = taken_for_writable)]
pub unsafe fn also(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {}

fn main() {}

//! What an operation returns of its result may be read, and written again.
#[maco::task(tile(i = 4))]
fn twice(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[update(i, ..)] t: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    let t = cta.zip((x, t), t, |(x, t)| x + t);
    let y = cta.zip(t, y, |v| 2.0 * v);
    let y = cta.map(y, |v| v + 1.0);
    cta.rows((x, t), y, |(x, t), y| {
        let (x, t) = (x.elements(), t.elements());
        y.set(move |j| x.at(j) + t.at(j))
    });
}

#[maco::task(tile(j = 64))]
fn counted(cta: &mut Cta, #[read(..)] ids: Tensor<u32, M>, #[read(.., j)] x: Tensor<f32, M, N>, #[update(.., j)] y: Tensor<f32, V, N>) {
    let y = cta.index_add(ids, x, y);
    cta.map(y, |v| 2.0 * v);
}

fn main() {}

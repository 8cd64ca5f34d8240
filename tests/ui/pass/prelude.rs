//! The prelude is used by every file of kernels, also by one whose tasks are its own.
#![deny(unused_imports)]

mod task {
    use maco::prelude::*;

    #[maco::task(tile(i = 64))]
    pub fn double(cta: &mut Cta, #[read(i)] x: Tensor<f32, M>, #[write(i)] y: Tensor<f32, M>) {
        cta.zip(x, y, |v| 2.0 * v)
    }
}

mod integers {
    use maco::prelude::*;

    #[maco::task(tile(i = 64))]
    pub fn next(cta: &mut Cta, #[update(i)] x: Tensor<i32, M>) {
        cta.map(x, |v| v + 1)
    }
}

mod elementwise {
    use maco::prelude::*;

    #[maco::task(elementwise)]
    pub fn negative(v: f32) -> f32 {
        -v
    }
}

mod graph {
    use crate::task::double;
    use maco::prelude::*;

    #[maco::graph]
    pub fn four_times(x: In<f32, M>, y: Out<f32, M>) {
        let h = temp::<f32, M>();
        double(x, h);
        double(h, y);
    }
}

mod megakernel {
    use crate::graph::four_times;
    use maco::prelude::*;

    #[maco::megakernel]
    pub fn kernel(x: In<f32, M>, y: Out<f32, M>) {
        four_times(x, y);
    }
}

fn main() {}

//! Users' own exchanges over channels, for every element.

use maco::prelude::*;

/// Each rank stores its plane for rank r in rank r's slot.
#[maco::task(tile(r = 1, i = 16 | 64, j = 64), E in [bf16, f16, f32, i32, i8])]
pub fn put(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<E, R, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    cta.put(x).signal().wait().receive(y)
}

/// Each rank keeps its plane for rank r, which rank r loads.
#[maco::task(tile(r = 1, i = 16, j = 64), E in [bf16, f16, f32, i32, i8])]
pub fn offer(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<E, R, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    let offered = cta.offer(x);
    let told = offered.signal();
    let there = told.wait();
    there.get(y)
}

/// Each word with its flag.
#[maco::task(tile(r = 1, i = 16, j = 64), E in [bf16, f16, f32, i32, i8])]
pub fn packets(cta: Cta<PacketChannel>, #[read(r, i, j)] x: Tensor<E, R, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    let sent = cta.put(x);
    sent.receive(y)
}

/// A proxy copies.
#[maco::task(tile(r = 1, i = 16 | 64, j = 64), E in [bf16, f16, f32, i32, i8])]
pub fn port(cta: Cta<PortChannel>, #[read(r, i, j)] x: Tensor<E, R, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    cta.put_with_signal(x).wait().receive(y)
}

/// The same in single steps, and with every wait for the proxy.
#[maco::task(tile(r = 1, i = 16, j = 64), E in [bf16, f16, f32, i32, i8])]
pub fn port_in_steps(cta: Cta<PortChannel>, #[read(r, i, j)] x: Tensor<E, R, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>, flushes: u32) {
    if flushes == 0 {
        let put = cta.put(x);
        let told = put.signal();
        told.wait().receive(y)
    } else if flushes == 1 {
        cta.put(x).flush().signal().flush().wait().receive(y)
    } else {
        cta.put_with_signal_and_flush(x).wait().receive(y)
    }
}

/// Plane r of y is the `x` of rank r.
#[maco::task(tile(r = 1, i = 16, j = 64), E in [bf16, f32])]
pub fn gather(cta: Cta<MemoryChannel>, #[read(i, j)] x: Tensor<E, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    cta.put(x).signal().wait().receive(y)
}

macro_rules! exchanges {
    ($name:ident, $element:ident) => {
        /// Every way from rank to rank, of the same planes.
        #[maco::megakernel]
        pub fn $name(
            #[shard(0)] x: In<$element, R, M, N>,
            #[shard(0)] by_put: Out<$element, R, M, N>,
            #[shard(0)] by_offer: Out<$element, R, M, N>,
            #[shard(0)] by_packets: Out<$element, R, M, N>,
        ) {
            put(x, by_put);
            offer(x, by_offer);
            packets(x, by_packets);
        }
    };
}
exchanges!(of_bf16, bf16);
exchanges!(of_f16, f16);
exchanges!(of_f32, f32);
exchanges!(of_i32, i32);
exchanges!(of_i8, i8);

/// What came goes back, and there again: each exchange needs what the one before brought, in the launch that sends it.
#[maco::megakernel]
pub fn chain(#[shard(0)] x: In<f32, R, M, N>, #[shard(0)] there: Out<f32, R, M, N>, #[shard(0)] back: Out<f32, R, M, N>) {
    let a = temp::<f32, R, M, N>().shard(0);
    put(x, a);
    let b = temp::<f32, R, M, N>().shard(0);
    packets(a, b);
    offer(b, there);
    put(there, back);
}

macro_rules! ports {
    ($name:ident, $element:ident) => {
        /// Every way by a proxy.
        #[maco::megakernel]
        pub fn $name(
            #[shard(0)] x: In<$element, R, M, N>,
            #[shard(0)] at_once: Out<$element, R, M, N>,
            #[shard(0)] in_steps: Out<$element, R, M, N>,
            flushes: u32,
        ) {
            port(x, at_once);
            port_in_steps(x, in_steps, flushes);
        }
    };
}
ports!(ports_of_bf16, bf16);
ports!(ports_of_f32, f32);
ports!(ports_of_i8, i8);

/// As [`chain`], by a proxy.
#[maco::megakernel]
pub fn port_chain(#[shard(0)] x: In<f32, R, M, N>, #[shard(0)] there: Out<f32, R, M, N>, #[shard(0)] back: Out<f32, R, M, N>) {
    let a = temp::<f32, R, M, N>().shard(0);
    port(x, a);
    let b = temp::<f32, R, M, N>().shard(0);
    put(a, b);
    port(b, there);
    port(there, back);
}

/// Each rank's own is on all ranks.
#[maco::megakernel]
pub fn gathered(#[shard(0)] x: In<bf16, M, N>, y: Out<bf16, R, M, N>) {
    gather(x, y);
}

/// Tasks of one name, over another channel.
pub mod others {
    use maco::prelude::*;

    #[maco::task(tile(r = 1, i = 16, j = 64))]
    pub fn put(cta: Cta<PacketChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
        cta.put(x).receive(y)
    }

    #[maco::megakernel]
    pub fn one(#[shard(0)] x: In<f32, R, M, N>, #[shard(0)] y: Out<f32, R, M, N>) {
        put(x, y);
    }
}

#[maco::megakernel]
pub fn one(#[shard(0)] x: In<f32, R, M, N>, #[shard(0)] y: Out<f32, R, M, N>) {
    put(x, y);
}

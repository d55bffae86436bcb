//! GPM: metrics between two samples. Ours are the same between any two.

use std::{ffi::c_char, ptr};

use crate::{
    abi::{Code, GpmSupport, Out},
    devices::expect_version,
    gate::{device_calls, system_calls},
    scene::{Scene, wave},
};

/// Here the version is not made of the size.
const SUPPORT_VERSION: u32 = 1;

/// What a sample holds: this, and the number of the device that it was taken of.
const EMPTY: usize = 0x6e47_0000_0000;

/// `nvmlGpmMetric_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Metric {
    pub id: u32,
    pub answer: u32,
    pub value: f64,
    pub names: [*const c_char; 3],
}

/// The head of `nvmlGpmMetricsGet_t`; as many metrics follow as `count` says.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MetricsHead {
    pub version: u32,
    pub count: u32,
    pub samples: [Out<usize>; 2],
}

device_calls! {
    nvmlGpmQueryDeviceSupport(at, support: Out<GpmSupport>) {
        let supported = at.gpu()?.gpm.is_some().into();
        let version = expect_version(support.cast(), SUPPORT_VERSION)?;
        support.put(GpmSupport { version, supported })
    }
    nvmlGpmSampleGet(at, sample: Out<usize>) {
        if at.gpu()?.gpm.is_none() {
            return Err(Code::NOT_SUPPORTED);
        }
        sample.put(EMPTY + at.number())
    }
}

system_calls! {
    nvmlGpmSampleAlloc(_scene, sample: Out<*mut usize>) { sample.put(Box::into_raw(Box::new(0))) }
    nvmlGpmSampleFree(_scene, sample: *mut usize) {
        // SAFETY: the caller gives back, once, what nvmlGpmSampleAlloc gave him.
        if !sample.is_null() { drop(unsafe { Box::from_raw(sample) }); }
        Ok(())
    }
    nvmlGpmMetricsGet(scene, metrics: Out<MetricsHead>) {
        let head = metrics.get()?;
        let numbers = [head.samples[0].get()?, head.samples[1].get()?].map(|it| it.wrapping_sub(EMPTY));
        if numbers[0] != numbers[1] {
            return Err(Code::INVALID_ARGUMENT);
        }
        let number = scene.number(Scene::handle(numbers[0])).or(Err(Code::INVALID_ARGUMENT))?;
        let gpu = &scene.world.gpus[scene.place(number)?.gpu];
        let list: Out<Metric> = metrics.at(1).cast();
        for index in 0..head.count as usize {
            let asked = list.at(index).get()?;
            let known = gpu.gpm.as_ref().and_then(|it| it.get(&asked.id).copied());
            let wander = if gpu.jitter { wave(scene.now, f64::from(asked.id)) * 6.0 } else { 0.0 };
            let value = known.map_or(0.0, |it| (it + wander).clamp(0.0, it.max(100.0)));
            let answer = if known.is_some() { 0 } else { Code::NOT_SUPPORTED.0 };
            list.at(index).put(Metric { answer, value, names: [ptr::null(); 3], ..asked })?;
        }
        Ok(())
    }
}

//! Simulates a training job, step by step, on the model allocator.

use super::allocator::{Block, DeviceAllocator, MIB};
use super::random::Random;

/// The lengths of a job's batches, as a share of the longest possible one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lengths {
    Fixed,
    Uniform(f64),
    LogNormal(f64),
    /// A few different lengths.
    Buckets(u64),
    /// Mostly short, with a very long one now and then.
    HeavyTail,
}

impl Lengths {
    pub(crate) fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Fixed => 1.0,
            Self::Uniform(low) => random.uniform(low, 1.0),
            Self::LogNormal(sigma) => (sigma * random.normal() - 2.5 * sigma).exp().min(1.0),
            Self::Buckets(kinds) => random.whole(1, kinds) as f64 / kinds as f64,
            Self::HeavyTail => (0.02 / (1.0 - random.unit()).powf(0.5)).min(1.0),
        }
    }
}

/// The parameters of a job.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) capacity: u64,
    pub(crate) context: u64,
    pub(crate) weights: u64,
    /// The activations of the longest batch.
    pub(crate) activations: u64,
    pub(crate) shares: Vec<f64>,
    pub(crate) lengths: Lengths,
    /// The loading rate in MiB per second.
    pub(crate) load: f64,
    /// Seconds.
    pub(crate) step: f64,
    pub(crate) expandable: bool,
}

impl Plan {
    /// Draws a job that leaves between `low` and `high` of the GPU's memory free.
    pub(crate) fn random(random: &mut Random, low: f64, high: f64) -> Self {
        let gib = random.pick(&[8, 11, 12, 16, 24, 24, 32, 40, 48, 80, 80, 80]);
        let capacity = (gib << 30) / 50 * 49;
        let held = (1.0 - random.uniform(low, high)) * capacity as f64;
        let context = random.whole(250, 800) * MIB;
        let rest = (held - context as f64).max(300e6);
        let share = random.uniform(0.2, 0.8);
        let mut shares: Vec<f64> = (0..random.whole(4, 7))
            .map(|_| random.log_uniform(0.02, 1.0))
            .collect();
        let sum: f64 = shares.iter().sum();
        for share in &mut shares {
            *share /= sum;
        }
        Self {
            capacity,
            context,
            weights: (rest * share) as u64,
            activations: (rest * (1.0 - share)) as u64,
            shares,
            lengths: Lengths::Fixed,
            load: random.log_uniform(40.0, 3000.0),
            step: random.log_uniform(0.15, 3.0),
            expandable: random.chance(0.2),
        }
    }
}

/// A running job.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    pub(crate) now: f64,
    memory: DeviceAllocator,
    /// The time and amount of each change of the process's memory.
    pub(crate) log: Vec<(f64, u64)>,
    /// The same for the memory of context and tensors, at some times of each step.
    pub(crate) tensors: Vec<(f64, u64)>,
    /// The time at which an allocation failed.
    pub(crate) out_of_memory_at: Option<f64>,
    kept: Vec<Block>,
}

impl Job {
    pub(crate) fn start(plan: Plan, random: Random) -> Self {
        let mut job = Self {
            memory: DeviceAllocator::new(plan.expandable),
            plan,
            random,
            now: 0.0,
            log: vec![(0.0, 0)],
            tensors: vec![(0.0, 0)],
            out_of_memory_at: None,
            kept: Vec::new(),
        };
        job.load();
        job
    }

    /// Creates the context, loads the weights layer by layer, and runs the first steps.
    fn load(&mut self) {
        self.now += self.random.uniform(0.5, 5.0);
        self.record_memory();
        let (weights, load) = (self.plan.weights, self.plan.load);
        let layers = self.random.whole(10, 60);
        let optimizer = if self.random.chance(0.7) { 0.75 } else { 0.0 };
        let mine = weights as f64 * (1.0 - optimizer);
        for _ in 0..layers {
            self.allocate_forever((mine / layers as f64) as u64);
            self.now += (mine / layers as f64 / (load * MIB as f64)).max(0.02);
        }
        self.step();
        // The first step creates gradients and optimizer state.
        for _ in 0..layers {
            self.allocate_forever((weights as f64 * optimizer / layers as f64) as u64);
        }
        // Autotuning tries kernels with workspaces of many sizes.
        for _ in 0..self.random.whole(0, 6) {
            let size = self
                .random
                .log_uniform(MIB as f64, 0.03 * self.plan.capacity as f64)
                as u64;
            if let Some(block) = self.allocate(size) {
                self.step();
                self.memory.free(block);
            }
        }
        // PyTorch empties its cache after autotuning.
        self.empty_cache();
        self.step();
    }

    pub(crate) fn record_memory(&mut self) {
        let held = self.plan.context + self.memory.reserved();
        if self.log.last().is_none_or(|last| last.1 != held) {
            self.log.push((self.now, held));
        }
    }

    /// Logs the memory of tensors at that many seconds from now.
    fn record_tensors(&mut self, later: f64) {
        self.tensors.push((
            self.now + later,
            self.plan.context + self.memory.allocated(),
        ));
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.out_of_memory_at.is_none()
    }

    fn allocate(&mut self, bytes: u64) -> Option<Block> {
        if self.out_of_memory_at.is_some() {
            return None;
        }
        let limit = self.plan.capacity - self.plan.context;
        let mut block = self.memory.allocate(bytes, limit);
        if block.is_none() {
            self.memory.empty_cache();
            block = self.memory.allocate(bytes, limit);
        }
        if block.is_none() {
            self.out_of_memory_at = Some(self.now);
        }
        self.record_memory();
        block
    }

    /// Allocates a tensor that is never freed.
    pub(crate) fn allocate_forever(&mut self, bytes: u64) {
        if bytes > 0
            && let Some(block) = self.allocate(bytes)
        {
            self.kept.push(block);
        }
        self.record_tensors(0.0);
    }

    /// Frees all kept tensors but the first `count`.
    pub(crate) fn release(&mut self, since: usize) {
        for block in self.kept.drain(since..) {
            self.memory.free(block);
        }
        self.record_tensors(0.0);
    }

    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn empty_cache(&mut self) {
        self.memory.empty_cache();
        self.record_memory();
    }

    /// Runs one batch, forward and backward.
    pub(crate) fn step(&mut self) {
        let length = self.plan.lengths.draw(&mut self.random);
        self.batch(length);
    }

    /// Runs one batch of a length.
    pub(crate) fn batch(&mut self, length: f64) {
        self.batch_with(length, |_| ());
    }

    /// Runs one batch of a length, and calls the closure between forward and backward, while all
    /// activations are held.
    pub(crate) fn batch_with(&mut self, length: f64, between: impl FnOnce(&mut Self)) {
        let whole = self.plan.activations as f64 * length;
        let mut held = Vec::with_capacity(self.plan.shares.len());
        for at in 0..self.plan.shares.len() {
            held.extend(self.allocate((whole * self.plan.shares[at]) as u64));
        }
        between(self);
        let span = self.plan.step * self.random.uniform(0.9, 1.1);
        self.record_tensors(0.3 * span);
        let half = held.len() / 2;
        for block in held.drain(half..).rev() {
            self.memory.free(block);
        }
        self.record_tensors(0.6 * span);
        while let Some(block) = held.pop() {
            self.memory.free(block);
        }
        self.record_tensors(0.9 * span);
        self.now += span;
    }

    /// Runs steps until a time, and calls the closure after each.
    pub(crate) fn run(&mut self, until: f64, mut after: impl FnMut(&mut Self)) {
        while self.now < until && self.is_alive() {
            self.step();
            after(self);
        }
    }
}

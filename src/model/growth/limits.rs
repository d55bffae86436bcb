//! The limits of the detector, each with its unit and reason. Times are in seconds, amounts in KiB.

/// The limits by which the detector decides.
pub(super) struct DetectorLimits {
    pub(super) gates: GateLimits,
    pub(super) watch: WatchLimits,
    pub(super) forecast: ForecastLimits,
    pub(super) plateau: PlateauLimits,
    pub(super) pattern: PatternLimits,
    pub(super) series: SeriesLimits,
}

/// The limits of the gates of [`super::gates`].
pub(super) struct GateLimits {
    /// The numbers of buckets that make a part. The next level has parts of four times as many, so
    /// that these lengths are close enough to each other.
    pub(super) buckets_of_part: [usize; 5],
    /// The fewest parts that show anything: fewer have no halves to compare.
    pub(super) fewest_parts: u8,
    /// The least gain of a part, as a share of the mean gain: growth pauses a little, but goes on.
    pub(super) least_gain: f64,
    /// A gain this many times the second largest is a jump, with another cause.
    pub(super) jump: f64,

    /// How far below the floor now an amount counts as about as much, as a share of the gain.
    pub(super) return_below: f64,
    /// How far below the floor now an amount is almost as much, as a share of the gain.
    pub(super) near_return: f64,
    /// Replaces `return_below` where almost as much was held once: then a return is more likely.
    pub(super) return_after_near: f64,
    /// The largest share of the time before in which about as much was held: a short bump is no
    /// sign of a return.
    pub(super) share_of_return: f64,
    /// The fewest buckets in a row in which a wave rises.
    pub(super) rises_of_wave: u8,
    /// The share of a wave by which it rises in one bucket, at most.
    pub(super) steepest_of_wave: f64,
    /// The least gain as a multiple of the largest wave before.
    pub(super) waves: f64,

    /// The fewest buckets of a part of a leak: one narrow bucket is too short to show regular growth.
    pub(super) fewest_buckets: f64,
    /// The width from which on a single bucket may be a part of a leak.
    pub(super) wide_bucket: f64,
    /// The least mean gain of a part of a leak in standard errors: chance reaches less in the many
    /// series of a host.
    pub(super) standard_errors: f64,
    /// The same for a suspect, whose figures are shown early.
    pub(super) standard_errors_of_suspect: f64,
    /// The fewest parts of a leak that have the length below. Each doubling of the length needs one
    /// less, since longer parts hold more samples.
    pub(super) parts_of_leak: f64,
    /// The length of the parts for which the number above holds: the shortest buckets.
    pub(super) part_of_leak: f64,
    /// The fewest parts of a leak, however long they are: four equal steps may be the stages of a
    /// job.
    pub(super) fewest_parts_of_leak: f64,
    /// The least speed of a leak whose end is far away, as a share of the earlier speed: a growth
    /// that slows down more is a warm-up.
    pub(super) least_speed: f64,
    /// The same for a suspect.
    pub(super) least_speed_of_suspect: f64,
    /// How many standard errors of the speed are forgiven: half of all even growths seem to slow
    /// down by chance.
    pub(super) forgiven_errors: f64,
    /// The time for which a leak has lasted, if memory is full soon.
    pub(super) span_of_leak: f64,
    /// The longest time left that counts as soon.
    pub(super) near_end: f64,
    /// The power with which a farther end makes the time of a leak longer: the farther the end, the
    /// surer the verdict.
    pub(super) span_power: f64,
    /// The time for which a leak has lasted that looks like loading: most loads end before.
    pub(super) span_of_loading: f64,
    /// The largest share of the memory that a process holds when it begins to load.
    pub(super) held_before_loading: f64,
    /// The least rate of loading in KiB per second: slow for a file system, and fast for a leak.
    pub(super) rate_of_loading: f64,
    /// The time of a suspect as a share of that of a leak.
    pub(super) suspect_share_of_leak: f64,
    /// The longest time that a suspect must have lasted: its figures must be seen early enough, also
    /// while a process loads.
    pub(super) span_of_suspect: f64,
    /// The same as a share of the time until memory is full.
    pub(super) suspect_share_of_end: f64,
    /// The longest time until memory is full for which growth matters: a day, since most jobs end
    /// before.
    pub(super) longest_left: f64,
}

/// The stall that ends a growth.
pub(super) struct Patience {
    /// The stall that ends a growth that never stalled before.
    pub(super) least: f64,
    /// The same as a multiple of the longest stall that the growth survived: the pauses of a job
    /// differ.
    pub(super) stalls: f64,
}

/// The limits of a growth that is watched.
pub(super) struct WatchLimits {
    /// Growth stalls while it gains less than this share of what its rate predicts: less is noise.
    pub(super) least_pace: f64,
    pub(super) patience_with_leak: Patience,
    pub(super) patience_with_suspect: Patience,
    /// The shortest stall in widths of the finest buckets, which matters where samples are rare.
    pub(super) fewest_buckets: f64,
    /// The parts without a rise after which a growth that is no leak pauses: a load ends at once.
    pub(super) parts_of_pause: f64,
    /// The same as a multiple of the longest stall that the growth survived.
    pub(super) stalls_of_pause: f64,
    /// The longest time for which memory may be given back: a garbage collection, or an emptied
    /// cache that fills again.
    pub(super) longest_dip: f64,
    /// A rise this many times what the rate predicts is a jump, with another cause.
    pub(super) jump: f64,
    /// The smallest jump that counts: half of what a CUDA context takes.
    pub(super) smallest_jump: f64,
    /// Memory that is given back at once is not the leak's while it is less than this share of what
    /// the leak has gained.
    pub(super) share_of_others: f64,
    /// The share of what a growth had gained, at most, that is still held when it is given back.
    pub(super) share_kept: f64,
    /// The parts that a growth with rests counts as: fewer than a regular growth has.
    pub(super) parts_of_mean: f64,
    /// A stall that is shorter than this share of the one before is a new one: growth went on
    /// between them.
    pub(super) new_stall: f64,
    /// The parts by which growth may begin before a leak stopped and still resume that leak: its
    /// first parts may reach back.
    pub(super) parts_of_overlap: f64,
    /// The least share of a leak's age that a growth spans whose figures replace the leak's.
    pub(super) share_for_figures: f64,
    /// The fewest parts of a growth that shows whether the longest one speeds up: stairs look like
    /// acceleration in fewer.
    pub(super) parts_of_telling: f64,
    /// The least share of the span of the longest growth that it spans.
    pub(super) share_of_telling: f64,
    /// The same for its rate, which may then rise.
    pub(super) share_for_rate: f64,
}

/// The limits of a forecast.
pub(super) struct ForecastLimits {
    /// The change from the third quarter to the last, as a share of that between the halves, from
    /// which on growth accelerates: with a constant acceleration, it is a half.
    pub(super) lasting_change: f64,
    /// The share of a GPU's memory that may not be available: the driver keeps some, the log of one
    /// process does not show what other processes hold, and the request that fails is larger than
    /// what is left.
    pub(super) headroom: f64,
    /// The standard deviation of the logarithm of the error when as much time is left as the growth
    /// has lasted, measured by `benches/growth`.
    pub(super) error: f64,
    /// The logarithm by which the lower bound is sooner where growth accelerates, measured likewise.
    pub(super) error_of_acceleration: f64,
    /// The power of the ratio of the two times with which the error changes, measured likewise.
    pub(super) error_power: f64,
    /// The least ratio: a time that is almost over is not certain.
    pub(super) least_ratio: f64,
    /// The largest ratio: a longer time is no less certain.
    pub(super) largest_ratio: f64,
    /// The standard deviations from the middle that hold 80 % of a normal distribution.
    pub(super) deviations: f64,
    /// The share of the highest amounts that are not usual: those of a checkpoint, or of a short
    /// burst.
    pub(super) rare: f64,
    /// The level of buckets that shows the amounts above the floor: half a minute each, for half an
    /// hour.
    pub(super) level_of_peaks: usize,
}

/// The limits of growth that levels off.
pub(super) struct PlateauLimits {
    /// The fewest buckets in which the floor of a growth rose whose parts are compared.
    pub(super) fewest_rises: usize,
    /// The fewest time constants that a growth may last, by which it is told from an even one.
    pub(super) fewest_tried: f64,
    /// The most: the growth has long ended then.
    pub(super) most_tried: f64,
    /// The number of time constants that are tried.
    pub(super) tried: u8,
    /// The standard deviation of a part's gain at least, as a share of the mean gain.
    pub(super) least_noise: f64,
    /// The fewest time constants of a growth that may level off.
    pub(super) least_constants: f64,
    /// The most time constants when that is first seen: growth that ends at once fits more.
    pub(super) most_constants: f64,
    /// The fewest of one whose plateau is named.
    pub(super) constants_of_sure: f64,
    /// How much better than even gains gains that become less must fit, in variances of a gain.
    pub(super) significance: f64,
    /// The deviations from gains that become less, at most, as a share of those from gains that
    /// change once: a growth that became slower goes on, and a single jump is no sign.
    pub(super) share_of_knee: f64,
    /// The gain of the last quarter, at most, as a multiple of what the fit says: after the cache is
    /// full, something else may still grow.
    pub(super) more_at_end: f64,
    /// How many times easier these conditions are while they are met.
    pub(super) ease: f64,
    /// The share of the time of a growth for which the conditions must be met before they count, and
    /// not be met before they no longer do.
    pub(super) confirming: f64,
    /// The share of what was gained that is missing from the plateau when the growth counts as over.
    pub(super) share_of_full: f64,
    /// The standard deviations from the best fit within which another one is still possible.
    pub(super) deviations: f64,
    /// The highest possible gain up to the plateau, as a multiple of the likely one, at which the
    /// plateau is named.
    pub(super) widest: f64,
}

/// The limits of the pattern of a growth.
pub(super) struct PatternLimits {
    /// The least time between two steps: shorter pauses are those of an even growth.
    pub(super) steps_apart: f64,
    /// The same in sampling intervals, which matters where samples are rare.
    pub(super) samples_of_step: f64,
    /// The least height of a step. PyTorch's allocator takes segments of 2 or 20 MiB, so a steady
    /// growth has steps of that size, too.
    pub(super) step_height: f64,
    /// The ratio of the current rate to the mean rate above which a growth accelerates.
    pub(super) acceleration: f64,
}

/// The limits of a series that does not grow like a leak, and of its drops.
pub(super) struct SeriesLimits {
    /// The age below which there is no verdict.
    pub(super) too_soon: f64,
    /// The same in sampling intervals.
    pub(super) too_few_samples: f64,
    /// The age below which any growth counts as warm-up.
    pub(super) young_job: f64,
    /// The number of finest buckets below which any growth counts as warm-up.
    pub(super) young_buckets: usize,
    /// The number of latest finest buckets in which a warm-up shows.
    pub(super) recent_buckets: usize,
    /// The amount that a warm-up gains in them at least: less is noise.
    pub(super) least_rise: f64,
    /// The same as a share of what is held.
    pub(super) least_share: f64,
    /// The growth of the second half as a share of that of the first, below which growth slows down:
    /// smaller differences occur in even growth, too.
    pub(super) even_share: f64,
    /// The amount below which nothing counts as held: a CUDA context alone takes more.
    pub(super) nothing: u32,
    /// The least amount that is released at once in a drop.
    pub(super) least_drop: u32,
    /// The divisor of what was held that gives the least amount released by emptying a cache.
    pub(super) cache_divisor: u32,
}

/// The limits of every detector.
pub(super) const LIMITS: DetectorLimits = DetectorLimits {
    gates: GateLimits {
        buckets_of_part: [1, 2, 3, 4, 6],
        fewest_parts: 4,
        least_gain: 0.25,
        jump: 3.0,
        return_below: 0.7,
        near_return: 0.3,
        return_after_near: 0.8,
        share_of_return: 1.0 / 3.0,
        rises_of_wave: 6,
        steepest_of_wave: 0.3,
        waves: 1.5,
        fewest_buckets: 2.0,
        wide_bucket: 32.0,
        standard_errors: 8.4,
        standard_errors_of_suspect: 4.0,
        parts_of_leak: 8.0,
        part_of_leak: 16.0,
        fewest_parts_of_leak: 6.0,
        least_speed: 0.92,
        least_speed_of_suspect: 0.7,
        forgiven_errors: 0.5,
        span_of_leak: 110.0,
        near_end: 900.0,
        span_power: 0.35,
        span_of_loading: 1200.0,
        held_before_loading: 0.5,
        rate_of_loading: 12.0 * 1024.0,
        suspect_share_of_leak: 0.4,
        span_of_suspect: 88.0,
        suspect_share_of_end: 0.2,
        longest_left: 24.0 * 3600.0,
    },
    watch: WatchLimits {
        least_pace: 0.25,
        patience_with_leak: Patience {
            least: 110.0,
            stalls: 3.0,
        },
        patience_with_suspect: Patience {
            least: 80.0,
            stalls: 1.2,
        },
        fewest_buckets: 1.6,
        parts_of_pause: 2.0,
        stalls_of_pause: 1.2,
        longest_dip: 64.0,
        jump: 3.0,
        smallest_jump: 262_144.0,
        share_of_others: 0.5,
        share_kept: 0.15,
        parts_of_mean: 2.0,
        new_stall: 0.4,
        parts_of_overlap: 2.0,
        share_for_figures: 0.4,
        parts_of_telling: 14.0,
        share_of_telling: 0.9,
        share_for_rate: 0.7,
    },
    forecast: ForecastLimits {
        lasting_change: 0.2,
        headroom: 0.02,
        error: 0.1,
        error_of_acceleration: 0.4,
        error_power: 0.4,
        least_ratio: 0.02,
        largest_ratio: 60.0,
        deviations: 1.28,
        rare: 0.1,
        level_of_peaks: 1,
    },
    plateau: PlateauLimits {
        fewest_rises: 13,
        fewest_tried: 0.05,
        most_tried: 10.0,
        tried: 160,
        least_noise: 0.02,
        least_constants: 0.3,
        most_constants: 3.0,
        constants_of_sure: 0.5,
        significance: 40.0,
        share_of_knee: 0.6,
        more_at_end: 0.3,
        ease: 1.5,
        confirming: 0.05,
        share_of_full: 0.02,
        deviations: 2.0,
        widest: 1.6,
    },
    pattern: PatternLimits {
        steps_apart: 60.0,
        samples_of_step: 15.0,
        step_height: 24.0 * 1024.0,
        acceleration: 1.6,
    },
    series: SeriesLimits {
        too_soon: 60.0,
        too_few_samples: 10.0,
        young_job: 300.0,
        young_buckets: 30,
        recent_buckets: 12,
        least_rise: 1024.0,
        least_share: 0.002,
        even_share: 0.75,
        nothing: 128 << 10,
        least_drop: 256 << 10,
        cache_divisor: 5,
    },
};

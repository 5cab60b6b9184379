//! Downsampling: keeps what a plot of limited width can show of any number of points.
//!
//! Each time bucket keeps its first, last, lowest and highest point (*M4*: Jugel, Jerzak,
//! Hackenbroich, Markl, 2014), so a line through them covers the same pixels as a line through all
//! points. The width of a bucket is a power of two of nanoseconds, and grows when there are too
//! many points. So nothing must be known about the points in advance, and they may arrive in any
//! order.

use std::collections::{BTreeMap, btree_map::Entry};

/// A time in nanoseconds since 1970, and a value.
pub(super) type Point = (i64, f64);

/// The maximum bucket width, as a power of two. There are two such buckets: before 1970, and after.
const WIDEST: u32 = 63;

/// The minimum number of points that can be requested: the maximum of two buckets of maximum width.
const FEWEST: usize = 8;

/// Receives points one after another, and keeps a limited number of them.
pub(crate) struct Downsampler {
    most: usize,
    /// All points, while they do not exceed the limit.
    all: Vec<Point>,
    /// The buckets of the points, after the limit was exceeded.
    buckets: BTreeMap<i64, Bucket>,
    /// The width of the buckets, as a power of two.
    width: u32,
    /// The number of points in the buckets.
    kept: usize,
    count: u64,
}

#[derive(Clone, Copy)]
struct Bucket {
    first: Point,
    low: Point,
    high: Point,
    last: Point,
}

impl Downsampler {
    /// Makes an empty downsampler that keeps at most `most` points, but at least 8.
    pub fn new(most: usize) -> Downsampler {
        let most = most.max(FEWEST);
        Downsampler { most, all: Vec::new(), buckets: BTreeMap::new(), width: 0, kept: 0, count: 0 }
    }

    pub fn add(&mut self, point: Point) {
        self.count += 1;
        if self.buckets.is_empty() {
            self.all.push(point);
            if self.all.len() > self.most {
                std::mem::take(&mut self.all).into_iter().for_each(|point| self.put(point));
            }
        } else {
            self.put(point);
        }
    }

    /// Returns the number of points received.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the points that were kept, the oldest first.
    pub fn finish(self) -> Vec<Point> {
        let mut points = self.all;
        points.sort_by_key(|(time, _)| *time);
        points.extend(self.buckets.values().flat_map(Bucket::points));
        points
    }

    fn put(&mut self, point: Point) {
        let new = Bucket::of(point);
        match self.buckets.entry(point.0 >> self.width) {
            Entry::Vacant(free) => {
                free.insert(new);
                self.kept += 1;
            }
            Entry::Occupied(mut bucket) => {
                self.kept -= bucket.get().len();
                bucket.get_mut().join(new);
                self.kept += bucket.get().len();
            }
        }
        while self.kept > self.most && self.width < WIDEST {
            self.widen();
        }
    }

    fn widen(&mut self) {
        let narrow = std::mem::take(&mut self.buckets);
        self.width += 1;
        for (key, bucket) in narrow {
            self.buckets.entry(key >> 1).and_modify(|wide| wide.join(bucket)).or_insert(bucket);
        }
        self.kept = self.buckets.values().map(Bucket::len).sum();
    }
}

impl Bucket {
    fn of(point: Point) -> Bucket {
        Bucket { first: point, low: point, high: point, last: point }
    }

    /// Merges another bucket, whose points arrived later.
    fn join(&mut self, other: Bucket) {
        if other.first.0 < self.first.0 {
            self.first = other.first;
        }
        // Of several equal minima or maxima, the earliest is kept.
        if (other.low.1, other.low.0) < (self.low.1, self.low.0) {
            self.low = other.low;
        }
        if (-other.high.1, other.high.0) < (-self.high.1, self.high.0) {
            self.high = other.high;
        }
        if other.last.0 >= self.last.0 {
            self.last = other.last;
        }
    }

    /// Returns the points by time, without duplicates.
    fn points(&self) -> impl Iterator<Item = Point> + use<> {
        let mut points = [self.first, self.low, self.high, self.last];
        points.sort_by_key(|(time, _)| *time);
        let is_new = move |at: &usize| *at == 0 || points[*at] != points[at - 1];
        (0..points.len()).filter(is_new).map(move |at| points[at])
    }

    fn len(&self) -> usize {
        self.points().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn downsample(most: usize, points: impl IntoIterator<Item = Point>) -> Vec<Point> {
        let mut downsampler = Downsampler::new(most);
        for point in points {
            downsampler.add(point);
            assert!(downsampler.all.len().max(downsampler.kept) <= downsampler.most, "bounded");
        }
        downsampler.finish()
    }

    #[test]
    fn few_points_stay_as_they_are() {
        let points = [(3, 1.0), (1, 2.0), (3, 2.0), (2, f64::INFINITY), (3, 2.0)];
        assert_eq!(downsample(8, points), [(1, 2.0), (2, f64::INFINITY), (3, 1.0), (3, 2.0), (3, 2.0)]);
        assert_eq!(downsample(8, []), []);
    }

    #[test]
    fn many_points_keep_their_outline_in_any_order() {
        // A sawtooth with one spike upwards and one downwards.
        let value = |number: i64| match number {
            50_001 => 1000.0,
            70_003 => -1000.0,
            number => (number % 100) as f64,
        };
        let in_order: Vec<Point> = (0..100_000).map(|number| (number * 1_000_003, value(number))).collect();
        // 7919 is coprime to the number of points.
        let mixed = (0..100_000).map(|number| in_order[number * 7919 % 100_000]);
        for kept in [downsample(400, in_order.iter().copied()), downsample(400, mixed)] {
            assert!((100..=400).contains(&kept.len()), "{} points", kept.len());
            assert!(kept.is_sorted_by_key(|(time, _)| *time));
            assert_eq!((kept.first(), kept.last()), (in_order.first(), in_order.last()));
            assert!(kept.contains(&(50_001 * 1_000_003, 1000.0)) && kept.contains(&(70_003 * 1_000_003, -1000.0)));
            // The outline is that of the sawtooth everywhere.
            for part in kept.chunks_exact(20) {
                let most = part.iter().map(|point| point.1).fold(f64::MIN, f64::max);
                let least = part.iter().map(|point| point.1).fold(f64::MAX, f64::min);
                assert!(most >= 99.0 && least <= 0.0, "{part:?}");
            }
        }
    }

    #[test]
    fn times_at_the_ends_have_buckets_too() {
        let times = (0..1000).flat_map(|number| [i64::MIN + number, -number, number, i64::MAX - number]);
        let kept = downsample(0, times.enumerate().map(|(value, time)| (time, value as f64)));
        assert!(kept.len() <= 8 && kept[0].0 == i64::MIN && kept[kept.len() - 1].0 == i64::MAX, "{kept:?}");
        assert!(downsample(8, (0..1000).map(|number| (7, f64::from(number)))).len() <= 3, "all at one time");
    }
}

//! A histogram that is told of many values at once. Events come by the batch, and a lock for each of them would cost
//! more than to count it.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric},
};

/// A handle; clones count together.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Mutex<Counts>>);

#[derive(Debug)]
struct Counts {
    sum: f64,
    count: u64,
    /// The largest value of each bucket, rising, and how many it has. The last one takes all.
    buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// With buckets for values up to each of these, which rise, and one for all above.
    pub fn new(bounds: impl IntoIterator<Item = f64>) -> Self {
        let buckets = bounds.into_iter().chain([f64::INFINITY]).map(|bound| (bound, 0)).collect();
        Histogram(Arc::new(Mutex::new(Counts { sum: 0.0, count: 0, buckets })))
    }

    pub fn observe(&self, value: f64) {
        self.observe_all([value]);
    }

    pub fn observe_all(&self, values: impl IntoIterator<Item = f64>) {
        let mut counts = self.0.lock().expect("nobody panics holding it");
        for value in values {
            let at = counts.buckets.partition_point(|(bound, _)| *bound < value);
            counts.sum += value;
            counts.count += 1;
            if let Some((_, count)) = counts.buckets.get_mut(at) {
                *count += 1;
            }
        }
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Counts { sum, count, buckets } = &*self.0.lock().expect("nobody panics holding it");
        encoder.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;

    #[test]
    fn a_value_is_counted_in_the_first_bucket_that_takes_it() {
        let histogram = Histogram::new([1.0, 2.0, 4.0]);
        histogram.observe(2.0);
        histogram.observe_all([0.5, 1.0, 3.0, 5.0]);
        let mut registry = Registry::default();
        registry.register("h", "Help", histogram);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("h_")).collect();
        let expected = [
            "h_sum 11.5",
            "h_count 5",
            r#"h_bucket{le="1.0"} 2"#,
            r#"h_bucket{le="2.0"} 3"#,
            r#"h_bucket{le="4.0"} 4"#,
            r#"h_bucket{le="+Inf"} 5"#,
        ];
        assert_eq!(lines, expected);
    }
}

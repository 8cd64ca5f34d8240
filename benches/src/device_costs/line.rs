//! A line through points that are measured.

/// `begin + slope · x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// At 0; never below it.
    pub begin: f64,
    /// For each unit.
    pub slope: f64,
}

impl Line {
    /// With the least sum of squared errors. No time is less than nothing: where that line begins below 0, it is the best of those that begin there; and where it
    /// falls, the mean of the points with a slope of next to nothing.
    pub fn through(points: impl IntoIterator<Item = (f64, f64)>) -> Line {
        let points: Vec<(f64, f64)> = points.into_iter().collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
        let slope = sum(&|point| (point.0 - x) * (point.1 - y)) / sum(&|point| (point.0 - x).powi(2));
        let begin = y - slope * x;
        if slope <= 0.0 {
            Line { begin: y, slope: f64::EPSILON }
        } else if begin < 0.0 {
            Line { begin: 0.0, slope: sum(&|point| point.0 * point.1) / sum(&|point| point.0 * point.0) }
        } else {
            Line { begin, slope }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn points_of_a_line_give_it_back() {
        let line = Line::through([1.0, 2.0, 5.0].map(|x| (x, 3.0 + 2.0 * x)));
        assert!((line.begin - 3.0).abs() < 1e-12 && (line.slope - 2.0).abs() < 1e-12, "{line:?}");
    }

    #[test]
    fn errors_cancel() {
        let line = Line::through([(0.0, 1.1), (1.0, 1.9), (2.0, 2.9), (3.0, 4.1)]);
        assert!((line.begin - 1.0).abs() < 0.1 && (line.slope - 1.0).abs() < 0.1, "{line:?}");
    }

    #[test]
    fn no_line_begins_below_nothing_or_falls() {
        assert_eq!(Line::through([(1.0, 1.0), (2.0, 3.0)]), Line { begin: 0.0, slope: 7.0 / 5.0 });
        assert_eq!(Line::through([(1.0, 4.0), (2.0, 2.0)]), Line { begin: 3.0, slope: f64::EPSILON });
    }
}

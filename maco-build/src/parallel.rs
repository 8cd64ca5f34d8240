//! The same for many things at once, on all cores: the assembler has one thread, and takes minutes for the kernels of a package.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// `work` of every item, in the order of the items. Those with the largest `size` are begun first: the last one to end should be short.
pub fn each<T: Sync, R: Send>(items: &[T], size: impl Fn(&T) -> usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(size(&items[index])));
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = work(&items[index]);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let begun = Mutex::new(Vec::new());
        let items = [3, 1, 4, 1, 5];
        let results = each(
            &items,
            |&item| item,
            |&item| {
                begun.lock().unwrap().push(item);
                item * 10
            },
        );
        assert_eq!(results, [30, 10, 40, 10, 50]);
        assert_eq!(begun.into_inner().unwrap().iter().max(), Some(&5));
        assert_eq!(each(&[0; 0], |_| 0, |_| ()), []);
    }
}

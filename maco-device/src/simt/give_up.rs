//! When a body on a host thread that waits for a flag gives up.

thread_local! {
    /// What a body that waits asks between polls: whether it should give up.
    static GIVE_UP: std::cell::Cell<Option<GiveUp>> = const { std::cell::Cell::new(None) };
}

/// A borrowed `dyn Fn() -> bool`, valid while [`giving_up`] runs.
type GiveUp = *const (dyn Fn() -> bool + 'static);

/// Runs `body`; a [`crate::Simt::wait_until`] in it gives up as soon as `when` says so, which is asked once per poll.
pub fn giving_up<T>(when: &dyn Fn() -> bool, body: impl FnOnce() -> T) -> T {
    struct Reset(Option<GiveUp>);
    impl Drop for Reset {
        fn drop(&mut self) {
            GIVE_UP.set(self.0);
        }
    }
    // SAFETY: only the lifetime changes; the pointer is gone when this function returns or unwinds.
    let when = unsafe { std::mem::transmute::<*const (dyn Fn() -> bool + '_), GiveUp>(when) };
    let _reset = Reset(GIVE_UP.replace(Some(when)));
    body()
}

/// See [`crate::Simt::wait_until`].
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    if let Some(holds) = crate::model::resting(&mut condition) {
        return holds;
    }
    loop {
        if condition() {
            return true;
        }
        // SAFETY: set while `giving_up` runs, on this thread.
        if GIVE_UP.get().is_some_and(|when| unsafe { (*when)() }) {
            return false;
        }
        std::thread::yield_now();
    }
}

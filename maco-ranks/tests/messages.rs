//! The reader of messages on what anybody may send: arbitrary bytes, and messages with some bytes changed. It does not panic, and does not take more memory than
//! its bound.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use maco_ranks::Failure;
use maco_ranks::message::{Body, HEADER, Incoming, Malformed, Message, STRANGERS_LIMIT, VERSION, decode, frame};
use proptest::prelude::*;

/// Counts what this thread has allocated since [`counted`] began.
struct Counting;

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = TAKEN.try_with(|taken| taken.set(taken.get().saturating_add(layout.size())));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn counted<R>(run: impl FnOnce() -> R) -> (R, usize) {
    TAKEN.set(0);
    let result = run();
    (result, TAKEN.get())
}

/// What a reader does with these bytes: the bodies, and why it stops.
fn read(bytes: &[u8], limit: usize) -> (Vec<Body>, Option<Malformed>) {
    let mut incoming = Incoming::new(limit);
    let mut bodies = Vec::new();
    // As they come from a socket.
    for part in bytes.chunks(97) {
        incoming.push(part);
        loop {
            match incoming.take() {
                Ok(Some(body)) => bodies.push(body),
                Ok(None) => break,
                Err(malformed) => return (bodies, Some(malformed)),
            }
        }
    }
    (bodies, None)
}

fn failures() -> impl Strategy<Value = Failure> {
    let operation = "[a-z ]{0,20}";
    prop_oneof![
        (operation, prop::collection::vec(any::<u32>(), 0..9), any::<u32>(), any::<u32>()).prop_map(|(operation, missing, ms, of)| {
            Failure::Late { operation, missing, deadline: std::time::Duration::from_millis(ms.into()), of }
        }),
        (any::<u32>(), prop::option::of(operation)).prop_map(|(rank, operation)| Failure::Lost { rank, operation }),
        (any::<u32>(), prop::option::of(operation)).prop_map(|(rank, operation)| Failure::Ended { rank, operation }),
        ((any::<u32>(), operation), (any::<u32>(), operation)).prop_map(|(one, other)| Failure::Order { one, other }),
        any::<u32>().prop_map(|rank| Failure::Twice { rank }),
        (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(rank, found, expected)| Failure::Count { rank, found, expected }),
        any::<u32>().prop_map(|rank| Failure::Garbled { rank }),
    ]
}

/// A frame of any message, and a check that it is read as what it was.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..60);
    let value = || prop::result::maybe_ok(bytes(), "[a-zä ]{0,20}");
    let same = |message: Message<'_>, descriptors: u8| {
        let frame = frame(&message, descriptors);
        assert_eq!(decode(&frame[HEADER..]), Ok(message));
        frame
    };
    prop_oneof![
        any::<[u8; 32]>().prop_map(move |nonce| same(Message::Challenge { nonce }, 0)),
        (any::<u32>(), any::<u32>(), any::<u32>(), any::<[u8; 32]>(), any::<[u8; 32]>())
            .prop_map(move |(rank, ranks, number, nonce, proof)| same(Message::Hello { rank, ranks, number, nonce, proof }, 0)),
        any::<[u8; 32]>().prop_map(move |proof| same(Message::Welcome { proof }, 0)),
        Just(()).prop_map(move |()| same(Message::Stranger, 0)),
        Just(()).prop_map(move |()| same(Message::Leave, 0)),
        ("[a-z ]{0,30}", any::<u64>(), any::<u64>(), value(), any::<u8>()).prop_map(move |(operation, deadline_ms, left_ms, value, n)| {
            let value = value.as_deref().map_err(String::as_str);
            same(Message::Round { operation: &operation, deadline_ms, left_ms, value }, n)
        }),
        prop::collection::vec(value(), 0..9).prop_map(move |values| {
            let values = values.iter().map(|value| value.as_deref().map_err(String::as_str)).collect();
            same(Message::Values { values }, 0)
        }),
        failures().prop_map(move |failure| same(Message::Failed { failure }, 0)),
    ]
}

/// Of bytes, bodies and messages: a list of `n` values in `n` bytes takes 24 bytes for each.
fn bound(bytes: usize, limit: usize) -> usize {
    40 * bytes + 4 * (limit + HEADER) + 4096
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..700), limit in 0..2 * STRANGERS_LIMIT) {
        let ((bodies, _), taken) = counted(|| read(&bytes, limit));
        prop_assert!(taken <= bound(bytes.len(), limit), "{taken} bytes for {}", bytes.len());
        prop_assert!(bodies.iter().all(|body| body.bytes.len() <= limit));
        // As if a header had been in front.
        let (message, taken) = counted(|| decode(&bytes).map(drop));
        prop_assert!(taken <= bound(bytes.len(), 0), "{taken} bytes for {}: {message:?}", bytes.len());
    }

    #[test]
    fn changed_messages_do_no_harm(
        frames in prop::collection::vec(frames(), 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = frames.concat();
        let (bodies, malformed) = read(&bytes, 4096);
        prop_assert_eq!((bodies.len(), malformed), (frames.len(), None));
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let (bodies, taken) = counted(|| read(&bytes, STRANGERS_LIMIT).0);
        prop_assert!(taken <= bound(bytes.len(), STRANGERS_LIMIT), "{taken} bytes for {}", bytes.len());
        for body in bodies {
            let (_, taken) = counted(|| decode(&body.bytes).map(drop));
            prop_assert!(taken <= bound(body.bytes.len(), 0), "{taken} bytes for {}", body.bytes.len());
        }
    }
}

#[test]
fn what_a_header_promises_is_not_taken_for_granted() {
    let mut promise = frame(&Message::Leave, 0);
    promise[8..HEADER].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(read(&promise, STRANGERS_LIMIT).1, Some(Malformed::TooLong { found: u32::MAX as usize, limit: STRANGERS_LIMIT }));
    // Even who may send much gets no memory before it does.
    promise[8..HEADER].copy_from_slice(&(1u32 << 30).to_le_bytes());
    let ((bodies, malformed), taken) = counted(|| read(&promise, 1 << 30));
    assert!(bodies.is_empty() && malformed.is_none() && taken < 1024, "{taken}");
    // A list of 2³² values in a body of some bytes.
    let mut list = frame(&Message::Values { values: vec![] }, 0)[HEADER..].to_vec();
    list.pop();
    list.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
    let (message, taken) = counted(|| decode(&list).map(drop));
    assert!(message.is_err() && taken < 1024, "{taken}");
}

#[test]
fn another_version_and_another_protocol_are_told_apart() {
    let mut other = frame(&Message::Leave, 0);
    other[4] = VERSION + 1;
    assert_eq!(read(&other, STRANGERS_LIMIT).1, Some(Malformed::Version(VERSION + 1)));
    assert_eq!(read(b"GET / HTTP/1.1\r\n\r\n", STRANGERS_LIMIT).1, Some(Malformed::Magic));
    assert_eq!(read(b"G", STRANGERS_LIMIT).1, Some(Malformed::Magic), "already at the first byte");
    let mut body = frame(&Message::Leave, 0)[HEADER..].to_vec();
    body.push(0);
    assert_eq!(decode(&body), Err(Malformed::Body), "nothing behind a message");
}

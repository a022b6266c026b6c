//! Reading a body: limited while streaming, against a deadline, whole or not at all.

use std::time::Duration;

use actix_web::error::PayloadError;
use actix_web::web::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::sync::Semaphore;

/// How much of a body that is too large is kept for the delivery log.
pub(crate) const PREFIX: usize = 8 * 1024;
/// What is reserved before the first byte came: `Content-Length` is only a claim.
const RESERVED: usize = UNASKED;

/// What each body may hold without asking: an ordinary lead. Thousands of senders that stop in the middle hold no more.
const UNASKED: usize = 16 * 1024;
/// Memory, in KiB, that the larger bodies of the whole process share while they arrive; then the store's queue answers for them.
static ROOM: Semaphore = Semaphore::const_new(256 * 1024);

/// Why there is no body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Over the limit; the beginning of it.
    TooLarge(Vec<u8>),
    /// The deadline passed.
    TooSlow,
    /// Too many large bodies arrive at once.
    NoRoom,
    /// The sender left, or its framing is broken: half a lead is not a lead.
    Incomplete,
}

/// Reads the whole body, never holding more than `limit` bytes of it. `declared` is its `Content-Length`.
pub(crate) async fn read(
    stream: &mut (impl Stream<Item = Result<Bytes, PayloadError>> + Unpin),
    declared: Option<u64>,
    limit: usize,
    deadline: Duration,
) -> Result<Vec<u8>, Broken> {
    let declared = declared.map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
    let read = tokio::time::timeout(deadline, within(stream, declared, limit, &ROOM)).await;
    read.unwrap_or(Err(Broken::TooSlow))
}

async fn within(
    stream: &mut (impl Stream<Item = Result<Bytes, PayloadError>> + Unpin),
    declared: usize,
    limit: usize,
    room: &Semaphore,
) -> Result<Vec<u8>, Broken> {
    let mut held = None;
    let mut body = Vec::with_capacity(declared.min(limit).min(RESERVED));
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| Broken::Incomplete)?;
        let too_large = declared > limit || body.len().saturating_add(chunk.len()) > limit;
        if too_large {
            let room = PREFIX.saturating_sub(body.len());
            body.extend(chunk.iter().take(room));
            body.truncate(PREFIX);
            body.shrink_to_fit();
            // A sender that announced too much still tells, with its first bytes, who it is.
            if declared <= limit || body.len() == PREFIX {
                return Err(Broken::TooLarge(body));
            }
            continue;
        }
        if held.is_none() && body.len().saturating_add(chunk.len()) > UNASKED {
            let whole = if declared == 0 { limit } else { declared };
            let kib = u32::try_from(whole / 1024).unwrap_or(u32::MAX);
            held = Some(room.try_acquire_many(kib).map_err(|_| Broken::NoRoom)?);
        }
        body.extend_from_slice(&chunk);
    }
    if declared > limit { Err(Broken::TooLarge(body)) } else { Ok(body) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    const SECOND: Duration = Duration::from_secs(1);

    fn chunks(sizes: &[usize]) -> impl Stream<Item = Result<Bytes, PayloadError>> + Unpin + use<> {
        let chunks: Vec<_> = sizes.iter().map(|size| Ok(Bytes::from(vec![b'x'; *size]))).collect();
        stream::iter(chunks)
    }

    #[actix_web::test]
    async fn a_body_of_exactly_the_limit_is_read_and_one_byte_more_is_not() {
        assert_eq!(read(&mut chunks(&[4, 6]), Some(10), 10, SECOND).await, Ok(vec![b'x'; 10]));
        assert_eq!(read(&mut chunks(&[4, 7]), None, 10, SECOND).await, Err(Broken::TooLarge(vec![b'x'; 11])));
    }

    #[actix_web::test]
    async fn of_a_body_too_large_a_prefix_is_kept_and_no_more() {
        for declared in [None, Some(5_000_000)] {
            let read = read(&mut chunks(&[1_000; 5_000]), declared, 100_000, SECOND).await;
            assert_eq!(read, Err(Broken::TooLarge(vec![b'x'; PREFIX])), "{declared:?}");
        }
    }

    #[actix_web::test]
    async fn an_announced_size_reserves_no_memory_by_itself() {
        let body = read(&mut chunks(&[3]), Some(900_000), 1_000_000, SECOND).await.expect("a body");
        assert!(body.capacity() <= RESERVED);
    }

    #[actix_web::test]
    async fn large_bodies_share_their_memory_and_small_ones_need_none() {
        let room = Semaphore::new(100);
        let mut stuck = chunks(&[20_000]).chain(stream::pending());
        {
            let mut first = Box::pin(within(&mut stuck, 60_000, 100_000, &room));
            tokio::select! {
                biased;
                _ = &mut first => panic!("it is stuck"),
                () = std::future::ready(()) => {}
            }
            let second = within(&mut chunks(&[20_000, 40_000]), 60_000, 100_000, &room).await;
            assert_eq!(second, Err(Broken::NoRoom));
            within(&mut chunks(&[10_000]), 10_000, 100_000, &room).await.expect("a small one");
        }
        within(&mut chunks(&[20_000, 40_000]), 60_000, 100_000, &room).await.expect("the first is gone");
    }

    #[actix_web::test]
    async fn a_body_that_breaks_off_is_no_body() {
        let broken = [Ok(Bytes::from_static(b"{\"name\"")), Err(PayloadError::Incomplete(None))];
        assert_eq!(read(&mut stream::iter(broken), Some(500), 1_000, SECOND).await, Err(Broken::Incomplete));
    }

    #[actix_web::test]
    async fn a_body_that_never_ends_is_cut_off_at_the_deadline() {
        let mut endless = chunks(&[5]).chain(stream::pending());
        let read = read(&mut endless, None, 1_000, Duration::from_millis(20)).await;
        assert_eq!(read, Err(Broken::TooSlow));
    }
}

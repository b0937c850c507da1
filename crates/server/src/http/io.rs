//! A connection that a client must go on reading from.

use raddle_sync::fault;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Bytes that a client takes in the time that it has, unless fewer are left (a guess: the slowest lines are as fast as that in 30 s).
const TAKEN_BYTES_MIN: usize = 256 << 10;

/// Writing fails when a client has taken neither all that is to be sent nor [`TAKEN_BYTES_MIN`] of it within `send_within`: an
/// answer that nobody reads, or a byte now and then, would stay for ever.
pub struct Paced<S> {
    stream: S,
    send_within: Duration,
    /// Runs from when something can't be written, until enough or all of it has been.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Since then.
    taken_bytes: usize,
}

impl<S> Paced<S> {
    pub fn new(stream: S, send_within: Duration) -> Paced<S> {
        Paced { stream, send_within, waiting: None, taken_bytes: 0 }
    }

    fn paced(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => {
                let Paced { waiting, taken_bytes, send_within, .. } = self;
                let waiting = waiting.get_or_insert_with(|| {
                    *taken_bytes = 0;
                    Box::pin(sleep(*send_within))
                });
                ready!(waiting.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Ready(Ok(bytes)) => {
                self.taken_bytes = self.taken_bytes.saturating_add(*bytes);
                let mut is_enough = self.taken_bytes >= TAKEN_BYTES_MIN;
                fault!(any_byte_is_enough => is_enough = true);
                if is_enough {
                    self.waiting = None;
                }
                written
            }
            Poll::Ready(Err(_)) => written,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.paced(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.paced(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is left to be written.
        self.waiting = None;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_sync::faults::{Fault, assert_caught};
    use std::{collections::VecDeque, future::poll_fn, io::ErrorKind::TimedOut};

    /// Takes as many bytes as it is told, one number a write; then it is full.
    struct Slow(VecDeque<usize>);

    impl AsyncWrite for Slow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            self.0.pop_front().map_or(Poll::Pending, |bytes| Poll::Ready(Ok(bytes)))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    const LIMIT: Duration = Duration::from_secs(30);

    /// What becomes of writing on, so long after the last time, when the client has taken so many bytes more.
    async fn after(paced: &mut Paced<Slow>, seconds: u64, taken: usize) -> Poll<io::ErrorKind> {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        paced.stream.0.extend((taken > 0).then_some(taken));
        poll_fn(|context| {
            while let Poll::Ready(written) = Pin::new(&mut *paced).poll_write(context, b"answer") {
                if let Err(error) = written {
                    return Poll::Ready(Poll::Ready(error.kind()));
                }
            }
            Poll::Ready(Poll::Pending)
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_too_little_is_left() {
        let mut paced = Paced::new(Slow(VecDeque::new()), LIMIT);
        assert_eq!(after(&mut paced, 0, 0).await, Poll::Pending);
        assert_eq!(after(&mut paced, 20, 1).await, Poll::Pending);
        assert_eq!(after(&mut paced, 11, 1).await, Poll::Ready(TimedOut));

        // Enough in time, again and again.
        let mut paced = Paced::new(Slow(VecDeque::new()), LIMIT);
        assert_eq!(after(&mut paced, 0, 0).await, Poll::Pending);
        for _ in 0..3 {
            assert_eq!(after(&mut paced, 20, TAKEN_BYTES_MIN).await, Poll::Pending);
        }
        assert_eq!(after(&mut paced, 31, 0).await, Poll::Ready(TimedOut));

        // All that there was: the next answer has a time of its own.
        let mut paced = Paced::new(Slow(VecDeque::new()), LIMIT);
        assert_eq!(after(&mut paced, 0, 0).await, Poll::Pending);
        poll_fn(|context| Pin::new(&mut paced).poll_flush(context)).await.unwrap();
        assert_eq!(after(&mut paced, 40, 1).await, Poll::Pending);
        assert_eq!(after(&mut paced, 31, 0).await, Poll::Ready(TimedOut));
    }

    #[test]
    fn fault_any_byte_is_enough() {
        assert_caught(Fault::any_byte_is_enough, "http::io::tests::who_takes_too_little_is_left");
    }
}

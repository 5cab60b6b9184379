//! Spans of the crate `tracing`, with the feature `tracing`. Without the feature, `span!` does not
//! evaluate its fields and generates no code.

#[cfg(feature = "tracing")]
pub(crate) use tracing::Span;

/// Formats wires as one field, separated by spaces.
#[cfg(feature = "tracing")]
pub(crate) fn wires(wires: impl Iterator<Item: ToString>) -> String {
    wires.map(|wire| wire.to_string()).collect::<Vec<_>>().join(" ")
}

/// Replaces `tracing::Span` without the feature `tracing`, and does nothing.
#[cfg(not(feature = "tracing"))]
#[derive(Clone)]
pub(crate) struct Span;

#[cfg(not(feature = "tracing"))]
impl Span {
    #[inline]
    pub(crate) fn entered(self) -> Span {
        self
    }

    #[inline]
    pub(crate) fn record(&self, _: &str, _: u64) {}

    #[inline]
    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }
}

/// Makes a span of the target `polywire`: `span!(TRACE, "publish", topic = .., sequence = ..)`. If
/// spans of this level are not enabled, the fields are not evaluated: `tracing` alone would format
/// them for the crate `log`, if another crate has enabled that.
#[cfg(feature = "tracing")]
macro_rules! span {
    ($level:ident, $($rest:tt)*) => {
        match ::tracing::Level::$level <= ::tracing::level_filters::LevelFilter::current() {
            true => ::tracing::span!(target: "polywire", ::tracing::Level::$level, $($rest)*),
            false => ::tracing::Span::none(),
        }
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! span {
    ($($ignored:tt)*) => {
        $crate::spans::Span
    };
}

pub(crate) use span;

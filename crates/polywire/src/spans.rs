//! Spans of the crate `tracing`, with the feature `tracing`. Without it, `span!` makes nothing: it
//! does not look at its fields, and leaves nothing in the program.

#[cfg(feature = "tracing")]
pub(crate) use tracing::Span;

/// Wires as one field, with spaces between them.
#[cfg(feature = "tracing")]
pub(crate) fn wires(wires: impl Iterator<Item: ToString>) -> String {
    wires.map(|wire| wire.to_string()).collect::<Vec<_>>().join(" ")
}

/// Takes the place of a span.
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

/// A span of the target `polywire`: `span!(TRACE, "publish", topic = .., sequence = ..)`. Where
/// nobody wants spans of its level, its fields are not looked at: `tracing` alone would write them
/// down for the crate `log`, if some other crate has asked for that.
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

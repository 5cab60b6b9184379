//! Validates UTF-8, of whole texts or while bytes are read, so that they are not checked twice. The
//! tokenisers of JSON and XML read strings in the latter way. It reads slices only.

use core::str::{self, Utf8Error};

use super::scan::{self, Clean};

/// The text of these bytes. Most texts are ASCII, which takes a fraction of the time to recognise.
#[inline]
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Utf8Error> {
    match bytes.is_ascii() {
        // SAFETY: ASCII is UTF-8.
        true => Ok(unsafe { str::from_utf8_unchecked(bytes) }),
        false => str::from_utf8(bytes),
    }
}

/// Bytes that are read from the front. All bytes passed so far are UTF-8.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed<'a> {
    whole: &'a [u8],
    /// The end of `whole`. What is in front of it was passed part by part, and each part is UTF-8.
    rest: &'a [u8],
}

impl<'a> Passed<'a> {
    /// Starts with the result of a search, which is passed. The error is the number of bytes that
    /// are UTF-8.
    #[inline]
    pub(crate) fn begin(found: Clean<'a>) -> Result<Passed<'a>, usize> {
        let mut passed = Passed { whole: found.whole(), rest: found.whole() };
        passed.pass_found(found).map(|_| passed)
    }

    /// All bytes, passed or not.
    #[inline]
    pub(crate) fn whole(&self) -> &'a [u8] {
        self.whole
    }

    /// The text passed so far.
    #[inline]
    pub(crate) fn text(&self) -> &'a str {
        // SAFETY: `pass_found` and `pass` move `rest` only past bytes that are UTF-8, so all of
        // `whole` in front of it is.
        unsafe { str::from_utf8_unchecked(self.whole.get_unchecked(..self.len())) }
    }

    /// The number of bytes passed so far.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.whole.len() - self.rest.len()
    }

    /// The bytes that are not passed yet.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Passes the result of [`scan::clean`], and returns whether all of it is ASCII. The error is
    /// the number of its bytes that are UTF-8.
    #[inline]
    pub(crate) fn pass_clean(&mut self) -> Result<bool, usize> {
        self.pass_found(scan::clean(self.rest))
    }

    /// The same with [`scan::markup`].
    #[inline]
    pub(crate) fn pass_markup(&mut self) -> Result<bool, usize> {
        self.pass_found(scan::markup(self.rest))
    }

    /// Passes the result of a search in the rest.
    #[inline]
    fn pass_found(&mut self, found: Clean<'a>) -> Result<bool, usize> {
        if !found.is_ascii() {
            check(found.bytes())?;
        }
        self.rest = found.rest();
        Ok(found.is_ascii())
    }

    /// Passes the next `n` bytes; fast for few bytes.
    #[inline]
    pub(crate) fn pass(&mut self, n: usize) -> Result<(), usize> {
        let Some((part, rest)) = self.rest.split_at_checked(n) else { return Err(self.rest.len()) };
        if !part.iter().all(u8::is_ascii) {
            check(part)?;
        }
        self.rest = rest;
        Ok(())
    }
}

/// The error is the number of bytes that are UTF-8.
#[cold]
fn check(bytes: &[u8]) -> Result<(), usize> {
    str::from_utf8(bytes).map(|_| ()).map_err(|error| error.valid_up_to())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_utf8_is_passed() {
        let mut passed = Passed::begin(scan::clean("é\\n\"".as_bytes())).unwrap();
        assert_eq!((passed.text(), passed.len(), passed.rest()), ("é", 2, &b"\\n\""[..]));
        assert_eq!((passed.pass(2), passed.pass_clean()), (Ok(()), Ok(true)));
        assert_eq!((passed.text(), passed.rest(), passed.whole().len()), ("é\\n", &b"\""[..], 5));
        // More than there is.
        assert_eq!((passed.pass(2), passed.text()), (Err(1), "é\\n"));

        // Half of a character, by whichever way.
        assert_eq!(Passed::begin(scan::clean(b"ab\xC3")).unwrap_err(), 2);
        let mut passed = Passed::begin(scan::markup(b"<\xC3\xA9\xA9")).unwrap();
        assert_eq!((passed.pass(2), passed.pass(3), passed.text()), (Err(1), Ok(()), "<é"));
        assert_eq!((passed.pass_markup(), passed.pass_clean(), passed.text()), (Err(0), Err(0), "<é"));
    }
}

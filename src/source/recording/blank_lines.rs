//! Skips empty lines, of which a file may have millions.

use std::io::{self, BufRead, ErrorKind};

/// Skips the white space before a line, and so empty lines. Returns the number of bytes skipped.
pub(super) fn skip(content: &mut dyn BufRead) -> io::Result<u64> {
    let mut skipped = 0;
    loop {
        let bytes = match content.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        let blank = bytes
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace())
            .count();
        let is_over = blank < bytes.len() || bytes.is_empty();
        content.consume(blank);
        skipped += blank as u64;
        if is_over {
            return Ok(skipped);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn white_space_is_skipped_over_the_end_of_the_buffer() {
        for (text, skipped, rest) in [
            ("\n \r\n\n{}\n", 5, "{}\n"),
            ("{} \n", 0, "{} \n"),
            ("\n\n\n\n", 4, ""),
            ("", 0, ""),
        ] {
            let mut content = BufReader::with_capacity(2, text.as_bytes());
            assert_eq!(skip(&mut content).unwrap(), skipped);
            assert_eq!(io::read_to_string(content).unwrap(), rest);
        }
    }
}

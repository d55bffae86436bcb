//! The clipboard of the user's terminal, which OSC 52 reaches through ssh too.

/// Returns the sequence that asks the terminal to copy a text to its clipboard.
pub(super) fn sequence(text: &str) -> String {
    format!("\x1b]52;c;{}\x07", base64(text.as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three
            .iter()
            .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place > three.len() {
                '='
            } else {
                char::from(letter)
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_encoded_as_terminals_expect() {
        for (text, expected) in [
            ("", ""),
            ("4", "NA=="),
            ("47", "NDc="),
            ("471", "NDcx"),
            ("4711 ü", "NDcxMSDDvA=="),
        ] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
        assert_eq!(sequence("4711"), "\x1b]52;c;NDcxMQ==\x07");
    }
}

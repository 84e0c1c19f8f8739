//! Writes numbers and addresses without `core::fmt`, which would take most of the time to format an access log line.

use std::io::Write as _;
use std::net::IpAddr;

/// Appends a number.
pub(crate) fn write_number(number: u64, out: &mut Vec<u8>) {
    // The longest number has 20 digits.
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = digit(rest);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends the last `N` digits of a number, with leading zeros.
pub(crate) fn write_digits<const N: usize>(number: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; N];
    let mut rest = number;
    for byte in digits.iter_mut().rev() {
        *byte = digit(rest);
        rest /= 10;
    }
    out.extend_from_slice(&digits);
}

/// Returns the last digit of a number.
const fn digit(number: u64) -> u8 {
    b'0' + (number % 10) as u8
}

/// Appends an address.
pub(crate) fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => {
            for (index, byte) in v4.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                write_number(u64::from(byte), out);
            }
        }
        IpAddr::V6(v6) => {
            // Writing into memory cannot fail.
            let _ = write!(out, "{v6}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"x".to_vec();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn written_numbers_and_addresses_equal_fmt_output(
            number in prop_oneof![0_u64..2_000, any::<u64>()],
            v4 in any::<[u8; 4]>(),
            v6 in any::<[u8; 16]>(),
        ) {
            prop_assert_eq!(text(|out| write_number(number, out)), format!("x{number}"));
            let (two, three) = (number % 100, number % 1_000);
            prop_assert_eq!(text(|out| write_digits::<2>(number, out)), format!("x{two:02}"));
            prop_assert_eq!(text(|out| write_digits::<3>(number, out)), format!("x{three:03}"));
            for address in [IpAddr::from(v4), IpAddr::from(v6)] {
                prop_assert_eq!(text(|out| write_address(address, out)), format!("x{address}"));
            }
        }
    }

    #[test]
    fn smallest_and_largest_numbers_are_written() {
        assert_eq!(text(|out| write_number(0, out)), "x0");
        assert_eq!(
            text(|out| write_number(u64::MAX, out)),
            "x18446744073709551615"
        );
    }
}

//! Defines macros that declare mirrored C structs and constants, and tables that tests use to check them.

/// Name and offset of a field of a mirrored struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, which is the same in C.
    pub name: &'static str,
    /// Offset in bytes from the start of the struct.
    pub offset: usize,
}

/// The layout of a mirrored struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The name in C, without `struct`.
    pub c_name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// The fields in declaration order, including padding.
    pub fields: &'static [Field],
}

/// A mirrored `#define` or enumerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// The name in C without the prefix `WEIR_`.
    pub name: &'static str,
    /// The value.
    pub value: u64,
}

/// Declares `#[repr(C)]` structs with a checked size, and `LAYOUTS` with the layouts of all of them.
macro_rules! structs {
    ($(
        $(#[$meta:meta])*
        $name:ident = $c_name:literal, $size:literal {
            $( $(#[$field_meta:meta])* $field:ident: $type:ty, )*
        }
    )*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $name {
                $( $(#[$field_meta])* pub $field: $type, )*
            }

            const _: () = assert!(size_of::<$name>() == $size, $c_name);

            impl $name {
                /// The value with all bytes zero.
                pub const ZERO: Self = Self { $( $field: <$type as $crate::mirror::Zero>::ZERO, )* };

                /// The struct's layout, for comparison with the layout in the data plane.
                pub const LAYOUT: $crate::Layout = $crate::Layout {
                    c_name: $c_name,
                    size: $size,
                    align: align_of::<$name>(),
                    fields: &[ $( $crate::Field {
                        name: stringify!($field),
                        offset: core::mem::offset_of!($name, $field),
                    }, )* ],
                };
            }

            impl Default for $name {
                fn default() -> Self {
                    Self::ZERO
                }
            }

            impl $crate::mirror::Zero for $name {
                const ZERO: Self = Self::ZERO;
            }
        )*

        pub(crate) const LAYOUTS: &[$crate::Layout] = &[ $( $name::LAYOUT, )* ];
    };
}

/// Declares constants, and `CONSTANTS` with all of them.
macro_rules! constants {
    ($( $(#[$meta:meta])* $name:ident: $type:ty = $value:expr; )*) => {
        $( $(#[$meta])* pub const $name: $type = $value; )*

        pub(crate) const CONSTANTS: &[$crate::Constant] = &[ $( $crate::Constant {
            name: stringify!($name),
            value: $name as u64,
        }, )* ];
    };
}

/// Declares the mirror of a C enum whose values are part of the ABI, with `ALL` and `from_number`.
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        $name:ident: $repr:ty {
            $( $(#[$variant_meta:meta])* $variant:ident = $number:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr($repr)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant = $number, )*
        }

        impl $name {
            /// Every value, by number.
            pub const ALL: &[Self] = &[ $( Self::$variant, )* ];

            /// Returns the value with this number, or `None` if there is none.
            pub fn from_number(number: $repr) -> Option<Self> {
                match number {
                    $( $number => Some(Self::$variant), )*
                    _ => None,
                }
            }
        }
    };
}

/// The all-zero value, as a constant.
pub(crate) trait Zero {
    const ZERO: Self;
}

macro_rules! zero {
    ($($type:ty),*) => { $( impl Zero for $type { const ZERO: Self = 0; } )* };
}
zero!(u8, u16, u32, u64, i32, i64);

impl<T: Zero + Copy, const N: usize> Zero for [T; N] {
    const ZERO: Self = [T::ZERO; N];
}

pub(crate) use {constants, numbered, structs};

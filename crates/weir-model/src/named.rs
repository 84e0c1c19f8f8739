//! Provides a macro for enums whose variants have names in the configuration.

/// Declares an enum, `ALL` with every variant in declaration order, and `as_str`, which returns the name of a variant.
///
/// Each variant is declared in one place, so no variant can be missing from `ALL` or lack a name.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$outer:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$inner:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$outer])*
        $visibility enum $name {
            $($(#[$inner])* $variant,)+
        }

        impl $name {
            /// Every variant, in declaration order.
            $visibility const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// Returns the name in the configuration, on the command line and in the status.
            $visibility const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

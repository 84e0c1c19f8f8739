//! A macro for enums with variants that have names in the configuration.

/// Declares an enum, `ALL` with every variant in order of declaration, and `as_str` with the name of each.
///
/// Each variant is declared in one place, so none can be missing from `ALL` or lack a name.
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
            /// Every variant, in order of declaration.
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

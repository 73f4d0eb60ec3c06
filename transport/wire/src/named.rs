//! Enums whose variants have names, as in statistics or for variables.

/// Makes an enum, the list of its variants, and their names, of one table.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $enum:ident {
        $($(#[$variant_meta:meta])* $variant:ident = $name:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $enum { $($(#[$variant_meta])* $variant,)+ }

        impl $enum {
            /// Every one, in order.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

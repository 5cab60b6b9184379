// Written by Polywire from IDL; changes here will be lost.

pub mod defaults {
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, polywire::Message)]
    #[polywire(name = "Defaults::Level")]
    #[repr(i32)]
    pub enum Level {
        #[polywire(name = "LOW")]
        Low = 0,
        #[polywire(name = "HIGH", default_literal)]
        #[default]
        High = 1,
    }

    #[derive(Clone, Debug, PartialEq, polywire::Message)]
    #[polywire(name = "Defaults::ByDefault", switch = "int32")]
    pub enum ByDefault {
        #[polywire(case(1), name = "a")]
        A(i32),
        #[polywire(default, name = "b")]
        B(String),
    }

    impl Default for ByDefault {
        fn default() -> Self {
            polywire::extend::layout::MessageField::default_value()
        }
    }

    #[derive(Clone, Debug, PartialEq, polywire::Message)]
    #[polywire(name = "Defaults::ByZero", switch = "int16")]
    pub enum ByZero {
        #[polywire(case(1), name = "a")]
        A(i32),
        #[polywire(case(0), name = "b", default = 7.0)]
        B(f64),
        #[polywire(default, name = "c")]
        C(String),
    }

    impl Default for ByZero {
        fn default() -> Self {
            polywire::extend::layout::MessageField::default_value()
        }
    }

    #[derive(Clone, Debug, PartialEq, polywire::Message)]
    #[polywire(name = "Defaults::ByFirst", switch = "octet")]
    pub enum ByFirst {
        #[polywire(case(3), name = "a")]
        A(bool),
        #[polywire(case(2), name = "b")]
        B(String),
    }

    impl Default for ByFirst {
        fn default() -> Self {
            polywire::extend::layout::MessageField::default_value()
        }
    }

    #[derive(Clone, Debug, PartialEq, polywire::Message)]
    #[polywire(name = "Defaults::ByLiteral", switch_type = "Level")]
    pub enum ByLiteral {
        #[polywire(case(0), name = "a")]
        A(i32),
        #[polywire(case(1), name = "b")]
        B(Vec<i32>),
    }

    impl Default for ByLiteral {
        fn default() -> Self {
            polywire::extend::layout::MessageField::default_value()
        }
    }

    #[derive(Clone, Debug, PartialEq, polywire::Message)]
    #[polywire(name = "Defaults::Recursive", switch = "int32")]
    pub enum Recursive {
        #[polywire(case(1), name = "next")]
        Next(Box<Recursive>),
        #[polywire(default, name = "x")]
        X(i32),
    }

    impl Default for Recursive {
        fn default() -> Self {
            polywire::extend::layout::MessageField::default_value()
        }
    }

    #[derive(Clone, Debug, PartialEq, polywire::Message)]
    #[polywire(name = "Defaults::Leaf")]
    pub struct Leaf {
        #[polywire(default = 5)]
        pub n: i32,
        #[polywire(default = "text", idl = "string<8>")]
        pub label: String,
        #[polywire(default = 3)]
        pub absent: Option<i32>,
    }

    impl Default for Leaf {
        fn default() -> Self {
            polywire::extend::layout::MessageField::default_value()
        }
    }

    #[derive(Clone, Debug, PartialEq, polywire::Message)]
    #[polywire(name = "Defaults::Everything")]
    pub struct Everything {
        pub by_default: ByDefault,
        pub by_zero: ByZero,
        pub by_first: ByFirst,
        pub by_literal: ByLiteral,
        pub recursive: Recursive,
        pub leaf: Box<Leaf>,
        pub leaves: [Leaf; 2],
        #[polywire(default = "LOW")]
        pub level: Level,
        #[polywire(idl = "octet[40]")]
        pub many: [u8; 40],
    }

    impl Default for Everything {
        fn default() -> Self {
            polywire::extend::layout::MessageField::default_value()
        }
    }
}

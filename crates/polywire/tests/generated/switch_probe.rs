// Written by Polywire from IDL; changes here will be lost.

pub mod oasis {
    pub mod network {
        pub mod switch {
            #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
            #[polywire(name = "OASIS::Network::Switch::SwitchPort")]
            pub struct SwitchPort {
                pub description: String,
                pub status: i32,
                pub speed: u64,
                pub r#type: u64,
                pub bytes_in: u64,
                pub discards_in: u64,
                pub errors_in: u64,
                pub bytes_out: u64,
                pub discards_out: u64,
                pub errors_out: u64,
                pub queue_length: u64,
            }

            #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
            #[polywire(name = "OASIS::Network::Switch::SwitchProbe")]
            pub struct SwitchProbe {
                pub ports: Vec<SwitchPort>,
                pub uptime: u64,
                pub cpu_load: i32,
                pub memory_total: u64,
                pub memory_used: u64,
            }
        }
    }
}

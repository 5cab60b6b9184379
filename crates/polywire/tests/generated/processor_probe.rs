// Written by Polywire from IDL; changes here will be lost.

pub mod oasis {
    pub mod system {
        pub mod processor {
            #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
            #[polywire(name = "OASIS::System::Processor::ProcessorProbe", nested)]
            pub struct ProcessorProbe {
                pub idle_time: u64,
                pub system_time: u64,
                pub user_time: u64,
            }

            #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
            #[polywire(name = "OASIS::System::Processor::LinuxProcessorProbe")]
            pub struct LinuxProcessorProbe {
                #[polywire(base)]
                pub base: ProcessorProbe,
                pub nice_time: u64,
                pub iowait_time: u64,
                pub irq_time: u64,
                pub soft_irq_time: u64,
            }
        }
    }
}

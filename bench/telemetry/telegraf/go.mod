module polywire.example/telegraf

go 1.24

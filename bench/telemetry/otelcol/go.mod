module polywire.example/otelcol

go 1.24

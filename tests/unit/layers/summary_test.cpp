// The summary matches the text that Keras 3.15.1 prints for the same models and widths.
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <string>
#include <string_view>

using namespace lockstep;

namespace {

constexpr std::string_view mnist_at_76 = R"(Model: "sequential"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ reshape (Reshape)               │ (None, 28, 28, 1)      │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ conv2d (Conv2D)                 │ (None, 26, 26, 32)     │           320 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ flatten (Flatten)               │ (None, 21632)          │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense (Dense)                   │ (None, 128)            │     2,769,024 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense_1 (Dense)                 │ (None, 10)             │         1,290 │
└─────────────────────────────────┴────────────────────────┴───────────────┘
 Total params: 2,770,634 (10.57 MB)
 Trainable params: 2,770,634 (10.57 MB)
 Non-trainable params: 0 (0.00 B)
)";

constexpr std::string_view mnist_at_88 = R"(Model: "sequential"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┓
┃ Layer (type)                         ┃ Output Shape                ┃         Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━┩
│ reshape (Reshape)                    │ (None, 28, 28, 1)           │               0 │
├──────────────────────────────────────┼─────────────────────────────┼─────────────────┤
│ conv2d (Conv2D)                      │ (None, 26, 26, 32)          │             320 │
├──────────────────────────────────────┼─────────────────────────────┼─────────────────┤
│ flatten (Flatten)                    │ (None, 21632)               │               0 │
├──────────────────────────────────────┼─────────────────────────────┼─────────────────┤
│ dense (Dense)                        │ (None, 128)                 │       2,769,024 │
├──────────────────────────────────────┼─────────────────────────────┼─────────────────┤
│ dense_1 (Dense)                      │ (None, 10)                  │           1,290 │
└──────────────────────────────────────┴─────────────────────────────┴─────────────────┘
 Total params: 2,770,634 (10.57 MB)
 Trainable params: 2,770,634 (10.57 MB)
 Non-trainable params: 0 (0.00 B)
)";

constexpr std::string_view wide_at_76 = R"(Model: "wide"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ conv2d (Conv2D)                 │ (None, 26, 26, 32)     │           320 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ batch_normalization             │ (None, 26, 26, 32)     │           128 │
│ (BatchNormalization)            │                        │               │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ global_average_pooling2d        │ (None, 32)             │             0 │
│ (GlobalAveragePooling2D)        │                        │               │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dropout (Dropout)               │ (None, 32)             │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ a_very_long_name_that_does_not… │ (None, 10)             │           330 │
│ (Dense)                         │                        │               │
└─────────────────────────────────┴────────────────────────┴───────────────┘
 Total params: 778 (3.04 KB)
 Trainable params: 714 (2.79 KB)
 Non-trainable params: 64 (256.00 B)
)";

constexpr std::string_view wide_at_40 = R"(Model: "wide"
┏━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━┓
┃                 ┃ Output     ┃ Param ┃
┃ Layer (type)    ┃ Shape      ┃     # ┃
┡━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━┩
│ conv2d (Conv2D) │ (None, 26, │   320 │
│                 │ 26, 32)    │       │
├─────────────────┼────────────┼───────┤
│ batch_normaliz… │ (None, 26, │   128 │
│ (BatchNormaliz… │ 26, 32)    │       │
├─────────────────┼────────────┼───────┤
│ global_average… │ (None, 32) │     0 │
│ (GlobalAverage… │            │       │
├─────────────────┼────────────┼───────┤
│ dropout         │ (None, 32) │     0 │
│ (Dropout)       │            │       │
├─────────────────┼────────────┼───────┤
│ a_very_long_na… │ (None, 10) │   330 │
│ (Dense)         │            │       │
└─────────────────┴────────────┴───────┘
 Total params: 778 (3.04 KB)
 Trainable params: 714 (2.79 KB)
 Non-trainable params: 64 (256.00 B)
)";

constexpr std::string_view wide_at_20 = R"(Model: "wide"
┏━━━━━━━━┳━━━━━┳━━━┓
┃ Layer  ┃ Ou… ┃ … ┃
┃ (type) ┃ Sh… ┃ # ┃
┡━━━━━━━━╇━━━━━╇━━━┩
│ conv2d │ (N… │ … │
│ (Conv… │ 26, │   │
│        │ 26, │   │
│        │ 32) │   │
├────────┼─────┼───┤
│ batch… │ (N… │ … │
│ (Batc… │ 26, │   │
│        │ 26, │   │
│        │ 32) │   │
├────────┼─────┼───┤
│ globa… │ (N… │ 0 │
│ (Glob… │ 32) │   │
├────────┼─────┼───┤
│ dropo… │ (N… │ 0 │
│ (Drop… │ 32) │   │
├────────┼─────┼───┤
│ a_ver… │ (N… │ … │
│ (Dens… │ 10) │   │
└────────┴─────┴───┘
 Total params: 778 (3.04 KB)
 Trainable params: 714 (2.79 KB)
 Non-trainable params: 64 (256.00 B)
)";

constexpr std::string_view branches_at_76 = R"(Model: "functional"
┏━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┓
┃ Layer (type)        ┃ Output Shape      ┃    Param # ┃ Connected to      ┃
┡━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━┩
│ input_layer         │ (None, 12, 12, 3) │          0 │ -                 │
│ (InputLayer)        │                   │            │                   │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ stem (Conv2D)       │ (None, 12, 12, 8) │        224 │ input_layer[0][0] │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ conv2d (Conv2D)     │ (None, 12, 12, 8) │        584 │ stem[0][0]        │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ batch_normalization │ (None, 12, 12, 8) │         32 │ conv2d[0][0]      │
│ (BatchNormalizatio… │                   │            │                   │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ add (Add)           │ (None, 12, 12, 8) │          0 │ batch_normalizat… │
│                     │                   │            │ stem[0][0],       │
│                     │                   │            │ stem[0][0]        │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ activation          │ (None, 12, 12, 8) │          0 │ add[0][0]         │
│ (Activation)        │                   │            │                   │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ global_average_poo… │ (None, 8)         │          0 │ activation[0][0]  │
│ (GlobalAveragePool… │                   │            │                   │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ flatten (Flatten)   │ (None, 1152)      │          0 │ activation[0][0]  │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ dense (Dense)       │ (None, 4)         │         36 │ global_average_p… │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ dense_1 (Dense)     │ (None, 4)         │      4,612 │ flatten[0][0]     │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ shared (Activation) │ (None, 4)         │          0 │ dense[0][0],      │
│                     │                   │            │ dense_1[0][0]     │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ multiply (Multiply) │ (None, 4)         │          0 │ shared[0][0],     │
│                     │                   │            │ shared[1][0]      │
├─────────────────────┼───────────────────┼────────────┼───────────────────┤
│ dense_2 (Dense)     │ (None, 10)        │         50 │ multiply[0][0]    │
└─────────────────────┴───────────────────┴────────────┴───────────────────┘
 Total params: 5,538 (21.63 KB)
 Trainable params: 5,522 (21.57 KB)
 Non-trainable params: 16 (64.00 B)
)";

constexpr std::string_view branches_at_108 = R"(Model: "functional"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
┃ Layer (type)                  ┃ Output Shape              ┃         Param # ┃ Connected to               ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━┩
│ input_layer (InputLayer)      │ (None, 12, 12, 3)         │               0 │ -                          │
├───────────────────────────────┼───────────────────────────┼─────────────────┼────────────────────────────┤
│ stem (Conv2D)                 │ (None, 12, 12, 8)         │             224 │ input_layer[0][0]          │
├───────────────────────────────┼───────────────────────────┼─────────────────┼────────────────────────────┤
│ conv2d (Conv2D)               │ (None, 12, 12, 8)         │             584 │ stem[0][0]                 │
├───────────────────────────────┼───────────────────────────┼─────────────────┼────────────────────────────┤
│ batch_normalization           │ (None, 12, 12, 8)         │              32 │ conv2d[0][0]               │
│ (BatchNormalization)          │                           │                 │                            │
├───────────────────────────────┼───────────────────────────┼─────────────────┼────────────────────────────┤
│ add (Add)                     │ (None, 12, 12, 8)         │               0 │ batch_normalization[0][0], │
│                               │                           │                 │ stem[0][0], stem[0][0]     │
├───────────────────────────────┼───────────────────────────┼─────────────────┼────────────────────────────┤
│ activation (Activation)       │ (None, 12, 12, 8)         │               0 │ add[0][0]                  │
├───────────────────────────────┼───────────────────────────┼─────────────────┼────────────────────────────┤
│ global_average_pooling2d      │ (None, 8)                 │               0 │ activation[0][0]           │
│ (GlobalAveragePooling2D)      │                           │                 │                            │
├───────────────────────────────┼───────────────────────────┼─────────────────┼────────────────────────────┤
│ flatten (Flatten)             │ (None, 1152)              │               0 │ activation[0][0]           │
├───────────────────────────────┼───────────────────────────┼─────────────────┼────────────────────────────┤
│ dense (Dense)                 │ (None, 4)                 │              36 │ global_average_pooling2d[… │
├───────────────────────────────┼───────────────────────────┼─────────────────┼────────────────────────────┤
│ dense_1 (Dense)               │ (None, 4)                 │           4,612 │ flatten[0][0]              │
├───────────────────────────────┼───────────────────────────┼─────────────────┼────────────────────────────┤
│ shared (Activation)           │ (None, 4)                 │               0 │ dense[0][0], dense_1[0][0] │
├───────────────────────────────┼───────────────────────────┼─────────────────┼────────────────────────────┤
│ multiply (Multiply)           │ (None, 4)                 │               0 │ shared[0][0], shared[1][0] │
├───────────────────────────────┼───────────────────────────┼─────────────────┼────────────────────────────┤
│ dense_2 (Dense)               │ (None, 10)                │              50 │ multiply[0][0]             │
└───────────────────────────────┴───────────────────────────┴─────────────────┴────────────────────────────┘
 Total params: 5,538 (21.63 KB)
 Trainable params: 5,522 (21.57 KB)
 Non-trainable params: 16 (64.00 B)
)";

}  // namespace

TEST_CASE("the summary of keras_mnist matches Keras") {
  const Sequential model{Input({28, 28}),
                         Reshape({28, 28, 1}),
                         Conv2D(32, 3, {.activation = relu}),
                         Flatten(),
                         Dense(128, {.activation = relu}),
                         Dense(10)};
  CHECK(model.summary() == mnist_at_76);
  CHECK(model.summary(88) == mnist_at_88);
}

TEST_CASE("the summary wraps long names as Keras does and counts non-trainable parameters") {
  const Sequential model({Input({28, 28, 1}), Conv2D(32, 3), BatchNormalization(), GlobalAveragePooling2D(),
                          Dropout(0.5), Dense(10, {.name = "a_very_long_name_that_does_not_fit_in_one_line_at_all"})},
                         "wide");
  CHECK(model.summary(76) == wide_at_76);
  CHECK(model.summary(40) == wide_at_40);
  CHECK(model.summary(20) == wide_at_20);
  CHECK_THROWS_AS(model.summary(19), UsageError);
}

TEST_CASE("the summary of a model with branches says what feeds each layer") {
  const Tensor input = Input({12, 12, 3});
  const Tensor x = Conv2D(8, 3, {.padding = "same", .activation = relu, .name = "stem"})(input);
  const Tensor y = BatchNormalization()(Conv2D(8, 3, {.padding = "same"})(x));
  const Tensor z = Activation(relu)(Add()({y, x, x}));
  const Activation shared(activations::tanh, "shared");
  const Tensor product = Multiply()({shared(Dense(4)(GlobalAveragePooling2D()(z))), shared(Dense(4)(Flatten()(z)))});
  const Functional model(input, Dense(10)(product));
  CHECK(model.summary(76) == branches_at_76);
  CHECK(model.summary(108) == branches_at_108);
}

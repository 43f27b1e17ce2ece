"""DCGAN on MNIST, with the hyperparameters that Fluid tuned: both learning rates.

    PENSTOCK_DATA=<folder> python examples/dcgan_mnist.py

MNIST is read as by ``mnist_lenet.py``. ``score`` is an inception score, exp(mean KL(p(y|x), p(y)))
(Salimans et al. 2016, section 4), whose classifier is no Inception but a small one of digits that
each trainer first trains on 6,000 of them: scores compare with each other, not with published ones.

Both networks take their step at once, with one optimiser: the generator's loss sees the
discriminator's weights as constants, and the discriminator sees images as constants.
"""

import sys
from functools import cache
from pathlib import Path

import penstock
import torch
from torch import nn
from torch.func import functional_call
from torch.utils.data import Subset, TensorDataset

sys.path.insert(0, str(Path(__file__).parent))  # trainers load this file, too
import mnist_lenet

NOISE = 100
#: Images from which a score is computed: rows, and images in a row.
ROWS, IN_A_ROW = 32, 16
SPACE = {"netG_lr": penstock.Float(1e-4, 5e-4), "netD_lr": penstock.Float(1e-4, 5e-4)}


@cache
def digits() -> TensorDataset:
    """All training images (1 x 28 x 28, bytes) and labels."""
    return mnist_lenet.LeNet({}).data().train.dataset


@cache
def classifier() -> nn.Module:
    """LeNet-5 after an epoch on 6,000 digits: the same in every process of a machine."""
    images, labels = (each[:6000] for each in digits().tensors)
    code = mnist_lenet.LeNet({"lr": 0.05, "momentum": 0.9})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = code.model()
        optimizer = code.optimizer(model)
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            code.loss(model, (images[batch], labels[batch])).backward()
            optimizer.step()
    return model.eval().requires_grad_(False)


class Gan(nn.Module):
    """Generator and discriminator of 28 x 28 images."""

    def __init__(self, width=16):
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(NOISE, 2 * width, 7),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
            nn.Tanh(),
        )
        self.discriminator = nn.Sequential(
            nn.Conv2d(1, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(2 * width * 49, 1),
        )


class Dcgan(penstock.TorchTrainable):
    """Hyperparameters as in ``SPACE``; ``examples`` is how many images are trained on."""

    batch_size = 32

    def data(self):
        noise = torch.randn(ROWS, IN_A_ROW, NOISE, generator=torch.Generator().manual_seed(0))
        examples = self.params.get("examples", len(digits()))
        classifier()  # made here, so that no epoch takes the time
        return penstock.Data(
            train=Subset(digits(), range(examples)), validation=TensorDataset(noise)
        )

    def model(self):
        return Gan()

    def optimizer(self, model):
        return torch.optim.Adam(
            [
                {"params": model.generator.parameters(), "lr": self.params["netG_lr"]},
                {"params": model.discriminator.parameters(), "lr": self.params["netD_lr"]},
            ],
            betas=(0.5, 0.999),
        )

    def loss(self, model, batch):
        real = batch[0].float() / 127.5 - 1
        fake = model.generator(torch.randn(len(real), NOISE, 1, 1, device=real.device))
        constant = {name: w.detach() for name, w in model.discriminator.named_parameters()}
        fooled = functional_call(model.discriminator, constant, fake)
        told = torch.cat([model.discriminator(real), model.discriminator(fake.detach())])
        truth = torch.cat([torch.ones_like(fooled), torch.zeros_like(fooled)])
        entropy = nn.functional.binary_cross_entropy_with_logits
        return 2 * entropy(told, truth) + entropy(fooled, torch.ones_like(fooled))

    def metrics(self, model, batch):
        images = model.generator(batch[0].reshape(-1, NOISE, 1, 1))
        scaled = ((images + 1) / 2 - 0.1307) / 0.3081
        sure = classifier()(scaled).log_softmax(1)
        mean = sure.exp().mean(0).log()
        score = (sure.exp() * (sure - mean)).sum(1).mean().exp()
        return {"loss": -score.log(), "score": score}


if __name__ == "__main__":
    for name in mnist_lenet.FILES:  # before anything is started
        mnist_lenet.read(name)
    study = penstock.create_study(
        direction="maximize", metric="score", strategy=penstock.ASHA(max_epochs=9), seed=0
    )
    study.optimize(Dcgan, SPACE, n_trials=9)
    print(f"score {study.best_value:.3f} with {study.best_params}")
